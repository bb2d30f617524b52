//! perf is an independent decoder of the same packets: on random records every
//! field that perf prints is the one that the decoder gives.
#[path = "support/mod.rs"]
mod support;

#[test]
fn explore() {
    use support::{perf, random::Random};
    let mut r = Random(1);
    let mut aux = Vec::new();
    for _ in 0..2000 {
        let mut f = r.fields();
        aux.extend(r.cell(&mut f));
    }
    let p = std::path::Path::new("/tmp/spe-explore.data");
    perf::write_file(p, &aux, 0x413f_d0c1).unwrap();
    panic!("{:?}", perf::version());
}
