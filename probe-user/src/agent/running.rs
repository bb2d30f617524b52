//! A running agent: its state, its windows, and what it exports of them.

mod budget;
mod following;
mod reload;

use std::{collections::BTreeSet, io, mem, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    AgentError, KeptCapabilities, Options, RunDirectory,
    config::{Config, Enabled},
    counting, folded,
    json_lines::JsonLines,
    ledger::Ledger,
    otlp::Push,
    outputs::{load_ledger, log_verdict, neighbours, open_json, start_push, start_resolver},
    overhead::{Governor, cost_meter::CostMeter},
    privileges,
    published::Published,
    run_directory::Switches,
    self_report::AgentSelfReport,
    state_directory::StateDirectory,
};
use crate::{
    derive::{AgentHealth, Neighbours, Report},
    emit::Exposition,
    machine::Machine,
    names::resolver::Resolver,
    pipeline::{Pipeline, PipelineError},
    session::SessionError,
    state::boot_id,
    sys::{
        clock::{nanos, now, wall},
        heap,
    },
};

/// How long after its start a shutdown stops waiting for the collector and the reader of the JSON
/// lines.
const LAST_FLUSH: Duration = Duration::from_millis(700);

/// Keeps the boot time already reported, unless the wall clock went back more than a second, which
/// would put the start of totals in the future.
fn reported_boot_time(reported: Duration, now: Duration) -> Duration {
    const SET_BACK: Duration = Duration::from_secs(1);
    if reported > now + SET_BACK {
        now
    } else {
        reported
    }
}

/// A running agent.
pub(super) struct Running {
    options: Options,
    config: Config,
    directory: RunDirectory,
    /// The boot id that totals belong to.
    boot: String,
    /// Unix time at which the clock of this process was 0. Reported starts are relative to it.
    boot_time: Duration,
    /// Whether the last save failed, which was logged.
    save_fails: bool,
    /// Whether the totals in the state directory are the latest, so that a new session may continue
    /// them. False after a failed save, and for a directory that a reload named.
    saved_is_latest: bool,
    neighbours: Neighbours,
    /// Asks runtimes for names, also between sessions.
    resolver: Option<Arc<Resolver>>,
    /// The switch files of the run directory, as last handled.
    switches: Switches,
    /// The PMUs of this machine when last listed.
    pmus: BTreeSet<String>,
    /// None while nothing is counted.
    pipeline: Option<Pipeline>,
    /// Keeps counting within `max_overhead`, if that is set.
    governor: Option<Governor>,
    /// Measures the cost of counting by window; None if nothing needs it, or it cannot be measured.
    cost_meter: Option<CostMeter>,
    /// The last logged reason why nothing is counted.
    last_error: Option<String>,
    /// What is shown until a session's first window ends: the last report before the session, or an
    /// empty one.
    last_report: Report,
    /// The sampling period of memory accesses at the end of the last session, in operations.
    period: Option<u64>,
    /// Whether a session missed a switch, since this kernel hides some from the program at
    /// `sched_switch`.
    hides_switches: bool,
    /// The locked state directory; None if the configuration names none.
    state_directory: Option<StateDirectory>,
    /// Whether a save is in progress.
    saving: watch::Sender<bool>,
    ledger: Ledger,
    exposition: Exposition,
    json: Option<JsonLines>,
    push: Option<Push>,
    self_report: AgentSelfReport,
    published: Arc<Published>,
}

/// What woke the loop up.
enum Wakeup {
    Scrape,
    SwitchFiles,
    SessionEnded(PipelineError),
}

impl Running {
    /// Begins to count. Must be called in a tokio runtime.
    pub(super) fn start(
        options: Options,
        config: Config,
        directory: RunDirectory,
        published: Arc<Published>,
        saving: watch::Sender<bool>,
    ) -> Result<Self, AgentError> {
        let acquire = |path| StateDirectory::acquire(path, options.save_state, &saving);
        let state = config.state.as_deref().map(acquire).transpose()?;
        let json = open_json(&config, &published)?;
        let resolver = start_resolver(&config.names)?;
        let push = start_push(&config, &published)?;
        let boot = boot_id(&Machine::this());
        let mut running = Self {
            ledger: load_ledger(&config, &boot),
            exposition: Exposition::new(&config.series.labels),
            options,
            switches: directory.switches(),
            config,
            directory,
            boot,
            boot_time: wall().saturating_sub(now()),
            save_fails: false,
            saved_is_latest: true,
            neighbours: Neighbours::new(None),
            resolver,
            pmus: BTreeSet::new(),
            pipeline: None,
            governor: None,
            cost_meter: None,
            last_error: None,
            last_report: Report::default(),
            period: None,
            hides_switches: false,
            state_directory: state,
            saving,
            json,
            push,
            self_report: AgentSelfReport::new(),
            published,
        };
        match running.switches.all {
            true => running.report_off(),
            false => running.start_session().map_err(Box::new)?,
        }
        Ok(running)
    }

    /// Gives up the capabilities that counting does not need from here on.
    pub(super) fn drop_privileges(&self) -> io::Result<()> {
        privileges::drop_all_but(match self.options.drop_all {
            true => KeptCapabilities::Nothing,
            false => KeptCapabilities::Counting {
                sampling: self.config.spe.enabled != Enabled::Off,
            },
        })
    }

    /// Waits for a scrape, a switch file or the end of the session, and handles it. Returns the
    /// interval if that changed. Cancel safe: may be dropped and called again.
    pub(super) async fn handle_wakeup(&mut self) -> Option<Duration> {
        let session_error = async {
            match &mut self.pipeline {
                Some(pipeline) => match pipeline.run_upkeep().await {
                    Ok(never) => match never {},
                    Err(error) => error,
                },
                None => std::future::pending().await,
            }
        };
        let wakeup = tokio::select! {
            () = self.published.requested() => Wakeup::Scrape,
            () = self.directory.changed() => Wakeup::SwitchFiles,
            error = session_error => Wakeup::SessionEnded(error),
        };
        let before = self.interval();
        match wakeup {
            Wakeup::Scrape => self.render_requested(),
            Wakeup::SwitchFiles => self.follow_files(),
            Wakeup::SessionEnded(error) => self.on_failure(&error),
        }
        self.interval_after(before)
    }

    /// Ends the window and publishes it. Returns the interval if that changed.
    pub(super) fn on_tick(&mut self) -> Option<Duration> {
        let before = self.interval();
        self.follow_files();
        self.follow_pmus();
        if self.pipeline.is_none() && !self.switches.all {
            self.restart_session();
        }
        if self.end_window() {
            self.keep_budget();
        }
        self.interval_after(before)
    }

    /// Ends the window and publishes it. False if nothing was counted.
    fn end_window(&mut self) -> bool {
        self.self_report.begin_pull();
        if let Some(meter) = &mut self.cost_meter {
            meter.begin_pull();
        }
        match self.advance() {
            Some(Ok(())) => {
                self.export_window();
                self.set_error(None);
                return true;
            }
            Some(Err(error)) => self.on_failure(&error),
            None => self.publish(),
        }
        false
    }

    /// Ends counting. A last window is counted if it has a receiver: JSON lines, a collector, or
    /// saved totals.
    pub(super) fn shut_down(&mut self) {
        let deadline = now() + LAST_FLUSH;
        let has_receiver =
            self.json.is_some() || self.push.is_some() || self.config.state.is_some();
        if has_receiver && self.pipeline.is_some() {
            self.end_window();
        }
        if self.save_fails && self.state_directory.is_some() {
            tracing::warn!("what was counted since the last save is missing after a restart");
        }
        let keeps_pins = self.options.keep_pins || self.config.pins.keep;
        if let Some(pipeline) = self.pipeline.as_mut().filter(|_| keeps_pins) {
            pipeline.keep_pins();
        }
        self.pipeline = None;
        let remaining = || deadline.saturating_sub(now());
        if let Some(json) = self.json.take() {
            json.finish(remaining());
        }
        if let Some(push) = self.push.take() {
            push.finish(remaining());
        }
    }

    /// Saves the totals of a pulled window and publishes it.
    fn export_window(&mut self) {
        self.complete_report();
        self.save();
        self.publish();
        self.self_report.end_pull();
    }

    /// Pauses counting, and publishes the window until now.
    fn pause(&mut self) {
        self.self_report.begin_pull();
        match self.advance() {
            Some(Ok(())) => self.export_window(),
            Some(Err(error)) => tracing::warn!("what was counted last is lost: {error}"),
            None => {}
        }
        if let Some(mut pipeline) = self.pipeline.take() {
            let snapshot = pipeline.snapshot();
            let spe = snapshot.samples.as_ref().and_then(|it| it.spe.as_ref());
            self.period = spe.map(|spe| spe.health.period).or(self.period);
            self.hides_switches |= snapshot.health.sum.missed_switches > 0;
            self.last_report = mem::take(pipeline.report_mut());
        }
    }

    /// Ends the pipeline's window by a pull; None while nothing is counted.
    fn advance(&mut self) -> Option<Result<(), SessionError>> {
        let pipeline = self.pipeline.as_mut()?;
        if self.config.count.top_processes > 0 {
            pipeline.watch(self.ledger.processes());
        }
        Some(pipeline.advance())
    }

    fn start_session(&mut self) -> Result<(), counting::CountingError> {
        (self.options.show_kernel_log)(self.config.kernel_log);
        let resolver = self.resolver.clone();
        // Listed before the plan is made, so that the next window notices a PMU that appears in
        // between.
        self.pmus = self.self_report.pmus();
        let start = counting::StartOptions {
            switches: self.switches,
            level: self.governor.as_ref().map(Governor::level),
            period: self.period,
            // `sched_exit` cannot be attached once all capabilities are given up.
            watch_exits: self.hides_switches || self.options.drop_all,
            saved_is_latest: self.saved_is_latest,
        };
        let (pipeline, resumed) = counting::start(&self.config, resolver, start)?;
        self.ledger.begin_session(pipeline.plan().opened(), resumed);
        self.neighbours = neighbours(&self.config, pipeline.plan());
        self.self_report.health.sessions += 1;
        self.pipeline = Some(pipeline);
        self.start_budget();
        heap::trim();
        Ok(())
    }

    /// Resumes counting after a pause. A failure is retried with the next window.
    fn restart_session(&mut self) {
        if let Err(error) = self.start_session() {
            self.on_failure(&error);
        }
    }

    /// Handles a failure of counting: ends the session, logs the reason once, and publishes it.
    fn on_failure(&mut self, error: &dyn std::error::Error) {
        self.self_report.health.failures += 1;
        self.pipeline = None;
        let mut why = error.to_string();
        if self.options.drop_all {
            why += "; all capabilities were given up (--drop-all): start the agent again";
        }
        if self.last_error.as_ref() != Some(&why) {
            tracing::error!("{why}; counting begins again as soon as that works");
        }
        self.publish();
        self.set_error(Some(why));
    }

    /// Logs and publishes that the switch file `off` stops counting.
    fn report_off(&mut self) {
        let why = format!(
            "off, since {} is there",
            self.directory.off_file().display()
        );
        tracing::info!("{why}");
        self.set_error(Some(why));
    }

    fn set_error(&mut self, why: Option<String>) {
        self.published.set_not_ready(why.clone());
        self.last_error = why;
    }

    /// Turns the pipeline's report into what is exported: stable start times, verdicts, at most
    /// `series.max` series, and the ledger's totals.
    fn complete_report(&mut self) {
        let Some(pipeline) = &mut self.pipeline else {
            return;
        };
        let started = self.self_report.started;
        let kernel_started = pipeline.kernel_time(started);
        // A total's start time never changes, even across a restart that continues the totals.
        let initial = (self.boot_time + started).saturating_sub(kernel_started);
        let boot_time_now = pipeline.snapshot().boot_time;
        let boot_time = reported_boot_time(self.ledger.boot_time.unwrap_or(initial), boot_time_now);
        self.ledger.boot_time = Some(boot_time);
        self.boot_time = (boot_time + kernel_started).saturating_sub(started);
        let report = pipeline.report_mut();
        report.boot_time = boot_time;
        report.time = boot_time_now + report.end;
        let verdicts = pipeline.judge(&mut self.neighbours);
        let begun = verdicts.iter().filter(|it| it.begins);
        begun.for_each(|verdict| log_verdict(pipeline.report(), verdict));
        let max_series = self
            .config
            .series
            .max
            .saturating_sub(AgentHealth::MAX_SERIES);
        let folded = folded::choose(pipeline.report(), max_series);
        self.self_report.health.folded = folded.rows.len() as u64;
        self.self_report.health.left_out = folded.left_out.len() as u64;
        let is_complete = self.ledger.apply_totals(pipeline.report_mut(), &folded);
        if !is_complete {
            let running = pipeline.entities();
            self.ledger
                .forget(&running, |process| pipeline.is_alive(process));
            self.neighbours.forget(&running);
        }
    }

    /// Saves the totals for the next start of the agent. A repeated failure is logged once.
    fn save(&mut self) {
        let (Some(pipeline), Some(directory)) = (&self.pipeline, &mut self.state_directory) else {
            return;
        };
        let (boot, ledger) = (&self.boot, &self.ledger);
        let saved = pipeline.state(boot).and_then(|state| {
            let files = state.into_iter().chain([ledger.encoded(boot)?]).collect();
            Ok(directory.save(files)?)
        });
        match (&saved, self.save_fails) {
            (Err(error), false) => tracing::warn!("{error}"),
            (Ok(()), true) => tracing::info!("totals are saved again"),
            _ => {}
        }
        self.save_fails = saved.is_err();
        self.saved_is_latest = saved.is_ok();
        self.self_report.health.failed_saves += u64::from(self.save_fails);
    }

    /// Publishes the last window, or only the agent's own metrics while nothing is counted.
    fn publish(&mut self) {
        let interval = self.interval();
        self.self_report.health.interval_nanos = Some(nanos(interval));
        self.self_report.health.off = self.switches.all.into();
        let mut health = self.self_report.collect(&self.published);
        let is_counting = self.pipeline.is_some();
        let report = match &mut self.pipeline {
            Some(pipeline) => {
                health.began = pipeline.kernel_time(self.self_report.started);
                pipeline.report_mut()
            }
            None => {
                health.began = self.self_report.started;
                let now = now();
                self.boot_time = reported_boot_time(self.boot_time, wall().saturating_sub(now));
                self.last_report = Report {
                    began: health.began,
                    start: now,
                    end: now,
                    boot_time: self.boot_time,
                    time: wall(),
                    ..Report::for_agent()
                };
                &mut self.last_report
            }
        };
        health.add_to(report);
        self.self_report.health.series =
            Some(Exposition::counts(report).iter().sum::<usize>() as u64);
        let exposition = &self.exposition;
        let report = &*report;
        self.published
            .publish(interval, |dialect| exposition.write(report, dialect));
        if let Some(push) = &self.push {
            push.send(report);
        }
        if is_counting && let Some(json) = &mut self.json {
            json.write(report);
        }
    }

    /// Renders the last published window in the formats that scrapes wait for.
    fn render_requested(&self) {
        let current = self.pipeline.as_ref().map(Pipeline::report);
        let report = current
            .filter(|report| !report.series.is_empty())
            .unwrap_or(&self.last_report);
        let exposition = &self.exposition;
        self.published
            .render_requested(|dialect| exposition.write(report, dialect));
    }
}
