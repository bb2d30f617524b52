//! The page's plots of `mem calibrate`, in a browser: accuracy and cost of sampling by setting,
//! compared with the command's file.

use std::{collections::BTreeMap, fs, path::Path};

use probe_user::samples::{CALIBRATED_FORMAT, Calibrated, CalibratedSetting, Mean, Unsampled};
use serde_json::Value;
use test_harness::browser::Browser;

use super::{
    measured::hover,
    recorded::record,
    sampled::{report, stream},
    *,
};

const fn mean(mean: f64, deviation: f64) -> Mean {
    Mean { mean, deviation }
}

/// A calibration with three sizes of buffers, in which small periods have collisions and overhead.
pub(crate) fn calibrated(platform: &str) -> Calibrated {
    const PERIODS: [u64; 8] = [1024, 2048, 3072, 4096, 8192, 16384, 32768, 65536];
    let setting = |(at, period): (usize, u64), aux_bytes: u64| {
        let lost = 0.5_f64.powi(i32::try_from(at).unwrap() + 1);
        CalibratedSetting {
            period,
            aux_bytes,
            threads: None,
            accuracy: mean(1.0 - lost, lost / 10.0),
            overhead: mean(80.0 / period as f64, 0.002),
            samples: mean(1e9 / period as f64, 10.0),
            invalid: mean(0.0, 0.0),
            collisions: mean(1000.0 * lost, 3.0),
            truncated: mean(0.0, 0.0),
            lost: mean(0.0, 0.0),
        }
    };
    let settings = (PERIODS.into_iter().enumerate()).map(|it| setting(it, 1 << 20));
    let sizes = [1 << 18, 1 << 22].map(|aux| setting((4, 8192), aux));
    let command = "[\"pmuscope\",\"mem\",\"calibrate\",\"--\",\"./stream\"]";
    Calibrated {
        format: CALIBRATED_FORMAT,
        platform: platform.to_owned(),
        about: BTreeMap::from([
            ("host".to_owned(), "node7".to_owned()),
            ("command".to_owned(), command.to_owned()),
        ]),
        runs: 5,
        jitter: 127.5,
        unsampled: vec![Unsampled {
            threads: None,
            seconds: mean(10.0, 0.02),
            mem_access: mean(1e9, 1e5),
            counted_seconds: mean(10.01, 0.02),
        }],
        settings: settings.chain(sizes).collect(),
        recommended: 5,
        recommendation: "recommended: --period 16384 --aux 1M: <b>accurate</b>".to_owned(),
    }
}

fn write(path: &Path, platform: &str) {
    let text = serde_json::to_string(&calibrated(platform)).unwrap();
    fs::write(path, text).unwrap();
}

/// The settings of a plot, with means and deviations.
fn drawn(browser: &mut Browser, id: &str) -> Vec<(String, f64, f64)> {
    let all = browser.evaluate(&format!(
        "(() => {{ const [it] = document.getElementById('{id}').data;
            return it.x.map((name, at) => [name, it.y[at], it.error_y.array[at]]); }})()"
    ));
    let all = all.as_array().unwrap().iter();
    all.map(|it| {
        let number = |at: usize| it[at].as_f64().unwrap() / 100.0;
        (it[0].as_str().unwrap().to_owned(), number(1), number(2))
    })
    .collect()
}

fn assert_drawn(
    drawn: &[(String, f64, f64)],
    all: &Value,
    names: &[&str],
    at: &[usize],
    what: &str,
) {
    assert_eq!(drawn.len(), names.len());
    for ((drawn, name), at) in drawn.iter().zip(names).zip(at) {
        let expected = &all["sampling"]["settings"][*at][what];
        let number = |key: &str| expected[key].as_f64().unwrap();
        assert_eq!(&drawn.0, name);
        assert!((drawn.1 - number("mean")).abs() < 1e-12, "{drawn:?}");
        assert!((drawn.2 - number("deviation")).abs() < 1e-12, "{drawn:?}");
    }
}

#[test]
fn the_page_has_the_accuracies_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (recording, samples, file) = (at("grace.jsonl.gz"), at("samples.parquet"), at("node.json"));
    record("grace", &recording, false);
    stream(&samples, 2000);
    write(&file, "grace");
    // A file with windows, and a file with samples only.
    for (input, width) in [(&recording, 1280), (&samples, 500)] {
        let words = |format: &'static str| {
            let format = [Path::new("--format"), Path::new(format)];
            report(&[
                input,
                Path::new("--calibration"),
                &file,
                format[0],
                format[1],
            ])
            .unwrap()
        };
        let all: Value = serde_json::from_str(&words("json")).unwrap();
        let pages = std::env::var_os("PMUSCOPE_PAGES").map(PathBuf::from);
        let page =
            (pages.as_deref().unwrap_or(directory.path())).join(format!("sampling-{width}.html"));
        fs::write(&page, words("html")).unwrap();
        let Some(mut browser) = Browser::open(&page, width) else {
            return;
        };
        let periods = [
            "1024", "2048", "3072", "4096", "8192", "16384", "32768", "65536",
        ];
        for what in ["accuracy", "overhead"] {
            let of_periods = drawn(&mut browser, &format!("sampling-{what}-0"));
            assert_drawn(&of_periods, &all, &periods, &[0, 1, 2, 3, 4, 5, 6, 7], what);
            let of_sizes = drawn(&mut browser, &format!("sampling-{what}-1"));
            assert_drawn(&of_sizes, &all, &["256K", "1M", "4M"], &[8, 4, 9], what);
        }
        let stars = browser.evaluate(
            "document.getElementById('sampling-accuracy-0').data[0].marker.symbol.indexOf('star')",
        );
        assert_eq!(stars, 5);
        let text = hover(&mut browser, "sampling-accuracy-0");
        assert!(
            text.contains("accuracy 50% ± 5, time overhead 7.813% ± 0.2"),
            "{text}"
        );
        assert!(
            text.contains("buffers with collisions 500"),
            "the collisions are there: {text}"
        );
        let note = browser.evaluate("document.getElementById('sampling-note').textContent");
        assert_eq!(note, calibrated("").recommendation);
        let wide = browser.evaluate("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide}");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}

#[test]
fn a_calibration_of_another_machine_is_refused_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let recording = at("grace.jsonl.gz");
    record("grace", &recording, false);
    write(&at("others"), "spr");
    fs::write(at("none"), "{}").unwrap();
    let mut later = calibrated("grace");
    later.format = CALIBRATED_FORMAT + 1;
    fs::write(at("later"), serde_json::to_string(&later).unwrap()).unwrap();
    let mut empty = calibrated("grace");
    empty.settings.clear();
    fs::write(at("empty"), serde_json::to_string(&empty).unwrap()).unwrap();
    for (file, sentence) in [
        (
            "others",
            "were measured on spr, and grace.jsonl.gz was recorded on grace",
        ),
        (
            "none",
            "it is no output of `pmuscope mem calibrate --format json`",
        ),
        ("later", "its format is 2, and 1 is read"),
        ("empty", "it has no settings: calibrate again"),
        ("absent", "No such file"),
    ] {
        let text = report(&[&recording, Path::new("--calibration"), &at(file)]).unwrap_err();
        assert!(
            text.contains(sentence) && text.trim().lines().count() == 1,
            "{text}"
        );
    }
}
