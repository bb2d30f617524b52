//! Sampled events while CPUs go offline and online, and on Linux before 6.3.

use probe_user::{event::sampling::sampled, session::SamplingConfig, window::SampleWindow};
use test_harness::{Counting, TestCgroup, machine, on_cpu, this_machine};

use crate::hotplug::set_online;

fn counting() -> Counting {
    let machine = this_machine();
    let pmus = machine.pmus().unwrap();
    let sampling = SamplingConfig {
        events: sampled("cpu-clock/period=200000/", pmus, None).unwrap(),
        addresses: true,
        ..SamplingConfig::default()
    };
    Counting::with("task-clock", |config| config.sampling = Some(sampling))
}

/// User-space samples of a process: all, and those in a known file.
fn samples(window: &SampleWindow, pid: u32) -> [u64; 2] {
    let count = |in_known_file: bool| -> u64 {
        (window.addresses.iter())
            .filter(|(key, _)| key.tgid == pid && !key.page && key.address >> 63 == 0)
            .filter(|(key, _)| {
                let place = window.places.get(&key.code_key());
                !in_known_file || place.is_some_and(|place| &*place.module != "[unknown]")
            })
            .map(|(_, counts)| counts.samples)
            .sum()
    };
    [count(false), count(true)]
}

fn samples_of_window(counting: &mut Counting, pid: u32) -> [u64; 2] {
    let named = samples(&counting.window().samples.unwrap(), pid);
    println!("{} of {} samples are in a known file", named[1], named[0]);
    named
}

#[test]
fn processes_on_a_cpu_that_comes_online_are_followed() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("follow");
    let mut counting = counting();
    set_online(1, false);
    counting.session.drain().unwrap();
    set_online(1, true);
    counting.session.drain().unwrap();
    // The process starts on CPU 1, and has ended when its samples are named.
    let pid = on_cpu(1, || {
        let load = cgroup.load("burn 1 300");
        let pid = load.pid();
        load.finish();
        pid
    });
    // A pull names as many addresses of all processes as it has time for; the next pull continues.
    let mut named = samples_of_window(&mut counting, pid);
    for _ in 0..50 {
        if named[0] == named[1] {
            break;
        }
        named = samples_of_window(&mut counting, pid);
    }
    let [all, known] = named;
    // The new event on CPU 1 counts from 0.
    let window = counting.window().samples.unwrap();
    let event = &window.events[0].health;
    assert!(
        event.sum.periods < 2 * event.counted && event.counted < 2 * event.sum.periods,
        "{event:?}"
    );
    // On a CPU whose processes are not followed, no sample would have a name.
    assert!(all > 0 && known == all, "{known} of {all}");
}

/// On Linux 6.1 and 6.2 the data address of such a sample is uninitialised stack memory.
#[test]
fn samples_of_a_clock_have_no_data_page() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("pages");
    let mut counting = counting();
    cgroup.load("burn 0 300").finish();
    cgroup.load("touch 2000").finish();
    let window = counting.window().samples.unwrap();
    let pages = window.addresses.iter().filter(|(key, _)| key.page);
    let pages: Vec<_> = pages.map(|(key, _)| key.address).collect();
    assert!(
        window.addresses.len() > 10 && pages.is_empty(),
        "{pages:x?}"
    );
}
