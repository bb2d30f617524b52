"""Draws what `pmuscope mem record --regions` wrote as figure 4 of the NMO paper: addresses over time,
coloured by region, with the phases behind them. Needs pyarrow and matplotlib.

    python3 regions.py samples.parquet picture.png
"""
import json
import sys

import matplotlib.pyplot as plt
import pyarrow.parquet

source, picture = sys.argv[1:3]
file = pyarrow.parquet.read_table(source, columns=["time_ns", "va", "region"])
about = {key.decode(): text for key, text in file.schema.metadata.items()}
rows = file.drop_null()
time, address, region = (rows[name].to_numpy() for name in rows.column_names)
start = time.min()
figure, axes = plt.subplots(figsize=(10, 6))
# Memory without a tag is elsewhere: it would leave the tags no room.
names = sorted(set(region))
for name in [name for name in names if name[0] != "["] or names:
    axes.scatter((time[region == name] - start) / 1e6, address[region == name], s=2, label=name)
for phase in json.loads(about["pmuscope.phases"]):
    since, until = int(phase["since_ns"]), int(phase["until_ns"] or time.max())
    axes.axvspan((since - float(start)) / 1e6, (until - float(start)) / 1e6, color="gray", alpha=0.2, zorder=0)
    axes.text((since - float(start)) / 1e6, 1, phase["name"], transform=axes.get_xaxis_transform(), rotation=45)
axes.set(xlabel="ms", ylabel="address")
axes.yaxis.set_major_formatter(lambda value, _: hex(int(value)))
figure.legend(loc="outside right upper", markerscale=5)
figure.savefig(picture, bbox_inches="tight")
