//! Sampled events on kernels and machines that the host is not: CPUs that come and go, and Linux
//! before 6.3.

use probe_user::{event::sampling::sampled, session::SamplingConfig, window::SampledWindow};

use crate::{
    hotplug::set_online,
    support::{Counting, TestCgroup, machine, on_cpu, this_machine},
};

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

/// Samples of a process in user space: all, and those in a known file.
fn samples(window: &SampledWindow, pid: u32) -> [u64; 2] {
    let of = |known: bool| -> u64 {
        let all = window.addresses.iter();
        let all = all.filter(|(key, _)| key.tgid == pid && !key.page && key.address >> 63 == 0);
        let all = all.filter(|(key, _)| {
            let place = window.places.get(&key.place());
            !known || place.is_some_and(|place| &*place.module != "[unknown]")
        });
        all.map(|(_, counts)| counts.samples).sum()
    };
    [of(false), of(true)]
}

fn samples_of_window(counting: &mut Counting, pid: u32) -> [u64; 2] {
    let named = samples(&counting.window().sampled.unwrap(), pid);
    println!("{} of {} samples are in a known file", named[1], named[0]);
    named
}

#[test]
fn processes_are_followed_on_a_cpu_that_comes_back() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("follow");
    let mut counting = counting();
    set_online(1, false);
    counting.session.drain().unwrap();
    set_online(1, true);
    counting.session.drain().unwrap();
    // It is made and executed there, and has ended when its samples are named.
    let pid = on_cpu(1, || {
        let load = cgroup.load("burn 1 300");
        let pid = load.pid();
        load.finish();
        pid
    });
    // A pull names what it has time for, of all processes, and the next one goes on.
    let mut named = samples_of_window(&mut counting, pid);
    for _ in 0..50 {
        if named[0] == named[1] {
            break;
        }
        named = samples_of_window(&mut counting, pid);
    }
    let [all, known] = named;
    // Of a CPU that is not followed none would have a name.
    assert!(all > 0 && known == all, "{known} of {all}");
}

/// Linux 6.1 and 6.2 give such a sample what was on the stack.
#[test]
fn samples_of_a_clock_have_no_data_page() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("pages");
    let mut counting = counting();
    cgroup.load("burn 0 300").finish();
    cgroup.load("touch 2000").finish();
    let window = counting.window().sampled.unwrap();
    let pages = window.addresses.iter().filter(|(key, _)| key.page);
    let pages: Vec<_> = pages.map(|(key, _)| key.address).collect();
    assert!(
        window.addresses.len() > 10 && pages.is_empty(),
        "{pages:x?}"
    );
}
