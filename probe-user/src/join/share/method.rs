//! The method of a share ([`Method`]), and the reason for a missing one ([`NoShare`]).

use std::{fmt, sync::Arc};

use libm::hypot;
use serde::{Deserialize, Serialize};

use crate::calibration::MadeOn;

/// How a share was measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Method {
    /// By the counts of an event on the CPUs.
    Counted {
        /// The weight's name in the catalogue.
        weight: Arc<str>,
        /// What else the event counts, if that is so much that no error can be stated.
        but: Option<Arc<str>>,
    },
    /// By the counts of events on the CPUs and a calibration of what they count
    /// ([`CalibratedTraffic`](crate::calibration::CalibratedTraffic)).
    Calibrated(MadeOn),
    /// By the SPE samples of accesses that the memory of the traffic served.
    Spe,
    /// The only owner of the device has all of its traffic.
    DeviceOwner,
    /// By the bytes that the kernel charged to cgroups on a block device.
    IoStat,
}

impl Method {
    /// Standard error of the method itself: the largest measured over the loads of
    /// docs/how-it-works/accuracy.md. `None` if it was not measured.
    fn measured_error(&self) -> Option<f64> {
        match self {
            Self::Counted { but, .. } => but.is_none().then_some(COUNTER_ERROR),
            Self::Spe => Some(SAMPLE_ERROR),
            Self::DeviceOwner => Some(0.0),
            Self::Calibrated(_) | Self::IoStat => None,
        }
    }

    /// What the weight's event counts in addition to the traffic, if no error can be stated.
    #[must_use]
    pub fn counts_also(&self) -> Option<&str> {
        match self {
            Self::Counted { but, .. } => but.as_deref(),
            Self::Calibrated(_) | Self::Spe | Self::DeviceOwner | Self::IoStat => None,
        }
    }

    /// What validates the weight of the share; `None` if it has no weight.
    #[must_use]
    pub fn validation(&self) -> Option<Validation> {
        match self {
            Self::Counted { .. } | Self::Spe | Self::IoStat => Some(Validation::Nothing),
            Self::Calibrated(MadeOn::ThisMachine) => Some(Validation::ThisMachine),
            Self::Calibrated(MadeOn::SameType) => Some(Validation::SameType),
            Self::DeviceOwner => None,
        }
    }

    /// Relative standard error of a share: that of the method, and n^-1/2 for the number of counts
    /// or samples of its weight.
    pub(super) fn counting_error(&self, samples: u64) -> Option<f64> {
        let own = self.measured_error()?;
        if own == 0.0 {
            return Some(0.0);
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "the root of more than 2^53 samples has no better precision"
        )]
        let samples = (samples > 0).then_some(samples as f64)?;
        Some(hypot(own, samples.sqrt().recip()))
    }
}

/// What has shown how well a weight represents the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// Nothing on this machine.
    Nothing,
    /// Loads of known traffic on this machine.
    ThisMachine,
    /// Loads of known traffic on a machine of the same type.
    SameType,
}

/// The value of the field `validated`.
impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "false",
            Self::ThisMachine => "calibration of this machine",
            Self::SameType => "calibration of this type of machine",
        })
    }
}

/// Standard error of weights counted on the CPUs, by docs/how-it-works/accuracy.md.
pub(super) const COUNTER_ERROR: f64 = 0.0056;

/// Standard error of sampled weights, by docs/how-it-works/accuracy.md: the largest root mean
/// square over the shares of a load, while samples were taken. It includes the error by the number
/// of samples, which could not be separated. [`Method::counting_error`] adds that error again.
pub(super) const SAMPLE_ERROR: f64 = 0.0116;

/// The value of the label `method`.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counted { weight, .. } => weight,
            Self::Calibrated(_) => "calibrated",
            Self::Spe => "spe",
            Self::DeviceOwner => "device_owner",
            Self::IoStat => "io_stat",
        })
    }
}

/// Why there is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoShare {
    /// No weight was counted on the CPUs of that socket.
    #[error("no weight was counted on the socket's CPUs")]
    NoWeight,
    /// The weight's counters were rotated out.
    #[error("the weight's counters were rotated out")]
    RotatedOut,
    /// The weight's counters were rotated out while this owner ran; the weights of others are
    /// known.
    #[error("the weight's counters were rotated out for most of its time")]
    OwnerUnseen,
    /// The owner ran, and its counters counted nothing.
    #[error(
        "it ran, but the weight's events counted nothing: its traffic may be of a kind that they \
         do not count"
    )]
    NothingCounted,
    /// No mixture of the calibrated patterns gives the owner's counts.
    #[error(
        "no mixture of the calibrated patterns gives its counts: it does something that was not \
         calibrated"
    )]
    NoMixture,
    /// The owner's counts fit mixtures that move very different amounts.
    #[error(
        "its counts fit patterns that move very different amounts: the error of its share would \
         exceed half of it"
    )]
    TooWide,
    /// The counts of all owners stand for more traffic than there was.
    #[error(
        "by the calibration the counts stand for more traffic than was moved: was it made on this \
         machine?"
    )]
    MoreThanMoved,
    /// There was more traffic than the counts of all owners can stand for.
    #[error(
        "more was moved than the counts explain by any mixture of the calibrated patterns: \
         something that was not calibrated reads or writes memory"
    )]
    Unexplained,
    /// The owner's whole share is within the mismatch of source and destination counts.
    #[error(
        "its traffic is smaller than the difference between what the sending and the receiving \
         socket count"
    )]
    WithinMismatch,
    /// The traffic itself, or a part that must be subtracted from it, was not counted.
    #[error("the traffic, or the part from devices and other sockets, could not be counted")]
    NotMeasured,
    /// More than two sockets access each other's memory, and each counts the others together.
    #[error("with more than two sockets, each counts what it sends to all others as one")]
    ManySockets,
    /// CPUs of several sockets read the memory, and what each sent is not counted.
    #[error("CPUs of other sockets read this memory too, and this machine does not count how much")]
    OtherSockets,
    /// A weight exceeded 2^64: the counter returned garbage.
    #[error("a weight is above 2^64: this machine may not count its event")]
    Saturated,
    /// The other socket's traffic went to two kinds of memory.
    #[error(
        "CPUs of other sockets accessed CPU memory and GPU memory here, and no event counts them \
         apart"
    )]
    BothMemories,
    /// It is not known which device the PMU counts.
    #[error(
        "the devices behind this count are unknown: `pmuscope list devices` shows the known ones"
    )]
    NoDevice,
    /// No process holds the device.
    #[error("no process holds the device")]
    NoOwner,
    /// Several owners share the device.
    #[error("several containers use the device, and no count separates their traffic")]
    SeveralOwners,
    /// One count covers several devices that are not all block devices.
    #[error("one count covers several devices, whose users may differ: `--device` selects one")]
    SeveralDevices,
    /// The kernel drives the device on behalf of any process.
    #[error(
        "the kernel drives the device for all containers, and no count separates their traffic"
    )]
    ThroughKernel,
    /// The holders of devices were not looked up at both ends of this window.
    #[error(
        "the device's holders were not looked up at both ends of this window, since that takes \
         more than 2% of its time: give longer windows (-I)"
    )]
    Stale,
    /// Some processes' descriptors cannot be seen.
    #[error(
        "the descriptors of some processes, which may hold the device, cannot be read: give \
         CAP_SYS_PTRACE"
    )]
    Unreadable,
    /// No cgroup moved anything on the block device.
    #[error("no cgroup's io.stat shows bytes on the block device")]
    NoBytes,
    /// Device traffic is known by cgroup, not by process.
    #[error("device traffic is known by container and cgroup, not by process")]
    NotOfProcesses,
}

impl NoShare {
    /// The reason as a metric label.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NoWeight => "no_weight",
            Self::RotatedOut => "weight_rotated_out",
            Self::OwnerUnseen => "weight_rotated_out_for_owner",
            Self::NothingCounted => "nothing_counted",
            Self::NoMixture => "no_mixture",
            Self::TooWide => "too_wide",
            Self::MoreThanMoved => "more_than_moved",
            Self::Unexplained => "unexplained",
            Self::WithinMismatch => "within_mismatch",
            Self::NotMeasured => "traffic_not_counted",
            Self::ManySockets => "many_sockets",
            Self::OtherSockets => "other_sockets",
            Self::Saturated => "saturated",
            Self::BothMemories => "both_memories",
            Self::NoDevice => "no_device",
            Self::NoOwner => "no_owner",
            Self::SeveralOwners => "several_owners",
            Self::SeveralDevices => "several_devices",
            Self::ThroughKernel => "through_kernel",
            Self::Stale => "holders_stale",
            Self::Unreadable => "holders_unreadable",
            Self::NoBytes => "no_bytes",
            Self::NotOfProcesses => "not_of_processes",
        }
    }
}
