//! Every event string in NVIDIA's documents encodes as in the drivers' sources.

use test_support::fixture;

use super::{super::Scope, Counter, counter, event, machine};

#[test]
fn strings_of_the_documents_encode_as_in_the_drivers() {
    let (grace, vera) = (machine("grace"), machine("vera"));
    let table = std::fs::read_to_string(fixture("event-strings.tsv")).unwrap();
    let mut count = 0;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let [machine, text, config, config1, config2] = line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("not five columns: {line}")
        };
        let pmus = match machine {
            "grace" => &grace,
            "vera" => &vera,
            other => panic!("no machine {other}"),
        };
        let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap();
        let pmu = pmus.get(text.split('/').next().unwrap()).unwrap().unwrap();
        let counter = counter(text, pmus);
        let Scope::Uncore { cpus } = counter.scope.clone() else {
            panic!("{text} counts per CPU")
        };
        assert_eq!(cpus.len(), 1, "{text}");
        assert_eq!(
            counter,
            Counter {
                pmu: Some(pmu.name.clone()),
                scope: Scope::Uncore { cpus },
                type_: pmu.type_,
                config: hex(config),
                config1: hex(config1),
                config2: hex(config2),
                config3: 0,
                config4: 0,
            },
            "{text}"
        );
        assert_eq!(event(text, pmus).name, text);
        count += 1;
    }
    assert_eq!(count, 46);
}

/// The wide fields of Intel's CHA and IIO units, as in intel/perfmon's event files.
#[test]
fn wide_fields_of_sapphire_rapids_are_encoded() {
    let spr = machine("spr");
    let config = |text| counter(text, &spr).config;
    assert_eq!(
        config("uncore_cha_0/event=0x35,umask=0xc8f3ff04/"),
        0x00c8_f3ff_0000_0435
    );
    assert_eq!(
        config("uncore_cha_1/event=0x36,umask=0xcc43fe04/"),
        0x00cc_43fe_0000_0436
    );
    assert_eq!(
        config("uncore_iio_0/event=0x84,umask=0x01,ch_mask=0x1,fc_mask=0x7/"),
        0x0007_0010_0000_0184
    );
    assert_eq!(
        config("uncore_iio_1/event=0xc0,umask=0x04,ch_mask=0x80,fc_mask=0x7/"),
        0x0007_0800_0000_04c0
    );
    assert_eq!(config("cpu/event=0xa3,umask=0x05,cmask=5/"), 0x0500_05a3);
    assert_eq!(
        config("cpu/event=0x0e,umask=0x01,cmask=1,inv/"),
        0x0180_010e
    );
    let load = counter("cpu/mem-loads/", &spr);
    assert_eq!((load.config, load.config1), (0x1cd, 3));
}
