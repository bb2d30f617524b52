use super::{
    super::{LineSubject, RunLine, tests::metric as run_metric},
    *,
};

/// The output of `pmuscope roofline`, from the golden file of its tests.
fn output_of_the_verb() -> &'static str {
    let golden = include_str!(
        "../../roofline/print/snapshots/probe_user__roofline__print__tests__json_has_the_fields_\
         of_the_page.snap"
    );
    golden.splitn(3, "---\n").nth(2).unwrap()
}

/// A container with FLOPS in two windows: 10 FLOP/s at 0.5 FLOP/B for 1 s, and 30 FLOP/s at 3
/// FLOP/B for 3 s. Its third window has none.
fn run() -> Run {
    let metric = |name: &str, unit: &str| run_metric(name, unit, false);
    let line = |metric, values: &[f64]| RunLine {
        subject: 0,
        metric,
        qualifier: String::new(),
        first: 1,
        values: values.to_vec(),
        intervals: Vec::new(),
        reason: None,
    };
    Run {
        windows: vec![(0.0, 1.0), (1.0, 2.0), (2.0, 5.0), (5.0, 6.0)],
        subjects: vec![LineSubject {
            part: "row",
            label: "web".to_owned(),
            ..LineSubject::default()
        }],
        metrics: vec![
            metric("flops", "1/s"),
            metric("flops_per_ll_read_miss_byte", "1/B"),
        ],
        lines: vec![line(0, &[10.0, 30.0, 0.0]), line(1, &[0.5, 3.0, f64::NAN])],
        ..Run::default()
    }
}

#[test]
fn output_of_the_verb_is_read() {
    let peaks = Peaks::parse(output_of_the_verb()).unwrap();
    assert_eq!(peaks.platform(), "generic");
    let json = RunRoofline::for_run(&run(), Some(&peaks))
        .unwrap()
        .json(&run());
    let roof = &json["roofs"][0];
    assert_eq!(roof["flops"], 1.07e12);
    assert_eq!(roof["bytes_per_second"], 1.75e11);
    assert_eq!(roof["levels"][0]["level"], "L1");
    // 100 FLOPs and 20 + 30 bytes in four seconds.
    let point = &json["points"][0];
    assert_eq!(
        (&point["flops"], &point["flops_per_byte"], &point["windows"]),
        (&json!(25.0), &json!(2.0), &json!(2))
    );
    assert_eq!(point["intensity_metric"], "flops_per_ll_read_miss_byte");
}

#[test]
fn a_file_that_is_no_roofline_is_refused_in_a_sentence() {
    let error = |text: &str| Peaks::parse(text).unwrap_err().to_string();
    assert!(error("name,value").contains("no output of `pmuscope roofline"));
    assert!(error("{\"format\": 1}").contains("no output of `pmuscope roofline"));
    let later = output_of_the_verb().replace("\"format\": 1", "\"format\": 2");
    assert!(error(&later).contains("its format is 2"));
    let mut without_roofs: Value = serde_json::from_str(output_of_the_verb()).unwrap();
    without_roofs["roofs"] = json!([]);
    assert!(error(&without_roofs.to_string()).contains("it has no roof"));
}

#[test]
fn without_peaks_or_counts_there_is_a_reason() {
    let peaks = Peaks::parse(output_of_the_verb()).unwrap();
    let why = |run: &Run, peaks| RunRoofline::for_run(run, peaks).unwrap_err();
    assert!(why(&run(), None).contains("no peaks of the machine were given"));
    let nothing = Run::default();
    assert!(why(&nothing, Some(&peaks)).contains("no FLOPS and no FLOPs per byte"));
    assert!(why(&nothing, None).contains("it needs FLOPS"));
    let mut idle = run();
    idle.lines[1].values = vec![f64::NAN; 3];
    assert!(why(&idle, Some(&peaks)).contains("no row of the recording"));
}
