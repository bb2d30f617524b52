use super::{
    super::{LineSubject, tests::metric},
    *,
};

fn run() -> Run {
    let subject = |name: &str| LineSubject {
        part: "row",
        label: name.to_owned(),
        labels: [("kind", "container".to_owned()), ("name", name.to_owned())].into(),
    };
    let distribution = |subject, counts: [u64; 4]| Distribution {
        subject,
        metric: 0,
        qualifier: "load".to_owned(),
        bounds: vec![31.0, 1023.0, 4_095_000.0],
        counts: counts.to_vec(),
    };
    Run {
        subjects: ["small", "large", "middle"].map(subject).to_vec(),
        metrics: vec![metric("memory_access_latency_cycles", "cycles", false)],
        histograms: vec![
            distribution(0, [1, 0, 0, 0]),
            distribution(1, [600, 300, 90, 10]),
            distribution(2, [0, 10, 0, 0]),
        ],
        ..Run::default()
    }
}

/// The axis has the bounds of the buckets and their unit; the largest distributions come first.
#[test]
fn a_distribution_is_over_the_bounds_of_its_buckets() {
    let selection = Selection {
        top: Some(2),
        ..Selection::default()
    };
    insta::assert_snapshot!(svg(&run(), &selection).unwrap());
}

/// Only some of many buckets have labels, which do not overlap.
#[test]
fn many_buckets_have_few_labels() {
    let bounds: Vec<f64> = (0..37).map(f64::from).collect();
    let axis = XAxis::Buckets(&bounds, "cycles").scale((0.0, 37.0));
    let names = axis.labels;
    let texts: Vec<&str> = names.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(texts[0], "\u{2264} 0.00 cycles");
    assert_eq!(texts.last(), Some(&"> 36.0"));
    assert!(texts.len() <= 9, "{texts:?}");
    assert!(names.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 5.0));
}
