//! A running agent: its windows, and what changes them.

mod budget;
mod following;
mod reload;

use std::{collections::BTreeSet, io, mem, sync::Arc, time::Duration};

use super::{
    AgentError, Kept, Options, RunDirectory,
    beside::{neighbours, open_json, push, resolver, say_verdict, totals},
    config::{Config, Enabled},
    counting, folded,
    json_lines::JsonLines,
    ledger::Ledger,
    otlp::Push,
    overhead::{Governor, measure::Mark},
    own::Own,
    published::Published,
    rights,
    run_directory::Switches,
    state_directory::StateDirectory,
};
use crate::{
    derive::{Neighbours, Report},
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

/// How long the end waits for a collector, and for whoever reads lines of JSON.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A boot time as it was told before; that of now where the wall's clock was set back so far that
/// totals would begin after they are told.
fn kept(told: Duration, now: Duration) -> Duration {
    const SET_BACK: Duration = Duration::from_secs(1);
    if told > now + SET_BACK { now } else { told }
}

/// A running agent.
pub(super) struct Running {
    options: Options,
    config: Config,
    directory: RunDirectory,
    /// The boot that totals are of.
    boot: String,
    /// Unix time at which the clock of this process was 0, as starts are told by it.
    boot_time: Duration,
    /// The last totals were not saved, and that was logged.
    save_fails: bool,
    /// What is remembered of containers that may suffer from others.
    neighbours: Option<Neighbours>,
    /// Asks runtimes for names, also between sessions.
    resolver: Option<Arc<Resolver>>,
    /// The files of the directory, as they were followed.
    switches: Switches,
    /// The PMUs of this machine when counting began.
    pmus: BTreeSet<String>,
    /// None where nothing is counted now.
    pipeline: Option<Pipeline>,
    /// Keeps counting within `max_overhead`, where that is set.
    governor: Option<Governor>,
    /// From where the cost of counting is measured.
    mark: Option<Mark>,
    /// The last reason that was logged why nothing is counted.
    said: Option<String>,
    /// Shown until a session's first window: the last one before, or nothing.
    before: Report,
    /// The period of memory accesses that the last session ended with.
    period: Option<u64>,
    /// A session missed a switch: this kernel hides some.
    hides: bool,
    /// Held while the configuration names it.
    state: Option<StateDirectory>,
    ledger: Ledger,
    exposition: Exposition,
    json: Option<JsonLines>,
    push: Option<Push>,
    own: Own,
    published: Arc<Published>,
}

/// What woke the loop up.
enum Event {
    Asked,
    Files,
    Ended(PipelineError),
}

impl Running {
    /// Begins to count. To be called in a runtime.
    pub(super) fn start(
        options: Options,
        config: Config,
        directory: RunDirectory,
        published: Arc<Published>,
    ) -> Result<Self, AgentError> {
        let take = |path| StateDirectory::take(path, options.save_state);
        let state = config.state.as_deref().map(take).transpose()?;
        let json = open_json(&config, &published)?;
        let resolver = resolver(&config.names)?;
        let push = push(&config, &published)?;
        let boot = boot_id(&Machine::this());
        let mut running = Self {
            ledger: totals(&config, &boot),
            exposition: Exposition::new(&config.series.labels),
            options,
            switches: directory.switches(),
            config,
            directory,
            boot,
            boot_time: wall().saturating_sub(now()),
            save_fails: false,
            neighbours: None,
            resolver,
            pmus: BTreeSet::new(),
            pipeline: None,
            governor: None,
            mark: None,
            said: None,
            before: Report::default(),
            period: None,
            hides: false,
            state,
            json,
            push,
            own: Own::new(),
            published,
        };
        match running.switches.all {
            true => running.say_off(),
            false => running.begin().map_err(Box::new)?,
        }
        Ok(running)
    }

    /// Gives up what counting does not need from here on.
    pub(super) fn give_up_rights(&self) -> io::Result<()> {
        rights::drop_all_but(match self.options.drop_all {
            true => Kept::Nothing,
            false => Kept::Counting {
                sampling: self.config.spe.enabled != Enabled::Off,
            },
        })
    }

    /// Waits for what a session, a file or a scrape wants, and does it; the interval where it is
    /// another one from here on. May be dropped and called again.
    pub(super) async fn event(&mut self) -> Option<Duration> {
        let kept = async {
            match &mut self.pipeline {
                Some(pipeline) => match pipeline.keep().await {
                    Ok(never) => match never {},
                    Err(error) => error,
                },
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            () = self.published.asked() => Event::Asked,
            () = self.directory.changed() => Event::Files,
            error = kept => Event::Ended(error),
        };
        let before = self.interval();
        match event {
            Event::Asked => self.complete(),
            Event::Files => self.follow_files(),
            Event::Ended(error) => self.failed(&error),
        }
        self.interval_after(before)
    }

    /// Ends the window and publishes it; the interval where it is another one from here on.
    pub(super) fn window(&mut self) -> Option<Duration> {
        let before = self.interval();
        self.follow_files();
        self.follow_pmus();
        if self.pipeline.is_none() && !self.switches.all {
            self.begin_again();
        }
        if self.end_window() {
            self.keep_budget();
        }
        self.interval_after(before)
    }

    /// Ends the window and publishes it. False where nothing was counted.
    fn end_window(&mut self) -> bool {
        self.own.pulls();
        if let Some(mark) = &mut self.mark {
            mark.pulls();
        }
        match self.advance() {
            Some(Ok(())) => {
                self.pulled();
                self.say(None);
                return true;
            }
            Some(Err(error)) => self.failed(&error),
            None => self.publish(),
        }
        false
    }

    /// Ends counting, with a last line of JSON.
    pub(super) fn end(&mut self) {
        let listened = self.json.is_some() || self.push.is_some() || self.config.state.is_some();
        if listened && self.pipeline.is_some() {
            self.end_window();
        }
        let until = now() + LAST_WORDS;
        let left = || until.saturating_sub(now());
        if let Some(json) = self.json.take() {
            json.finish(left());
        }
        if let Some(push) = self.push.take() {
            push.finish(left());
        }
        let keeps = self.options.keep_pins || self.config.pins.keep;
        if let Some(pipeline) = self.pipeline.as_mut().filter(|_| keeps) {
            pipeline.keep_pins();
        }
        self.pipeline = None;
    }

    /// A window was counted: saves its totals and publishes it.
    fn pulled(&mut self) {
        self.settle();
        self.save();
        self.publish();
        self.own.pulled();
    }

    /// Ends counting for now; what was counted is published.
    fn pause(&mut self) {
        self.own.pulls();
        match self.advance() {
            Some(Ok(())) => self.pulled(),
            Some(Err(error)) => tracing::warn!("what was counted last is lost: {error}"),
            None => {}
        }
        if let Some(mut pipeline) = self.pipeline.take() {
            let snapshot = pipeline.snapshot();
            let spe = snapshot.spe.as_ref();
            self.period = spe.map(|spe| spe.health.period).or(self.period);
            self.hides |= snapshot.health.sum.missed_switches > 0;
            self.before = mem::take(pipeline.report_mut());
        }
    }

    /// Ends the window; None where nothing is counted.
    fn advance(&mut self) -> Option<Result<(), SessionError>> {
        let pipeline = self.pipeline.as_mut()?;
        if self.config.count.top_processes > 0 {
            pipeline.watch(self.ledger.processes());
        }
        Some(pipeline.advance())
    }

    fn begin(&mut self) -> Result<(), counting::CountingError> {
        (self.options.show_kernel_log)(self.config.kernel_log);
        let resolver = self.resolver.clone();
        // Listed before the plan looks at them: a PMU that comes after this is seen with the next
        // window.
        self.pmus = self.own.pmus();
        let start = counting::Start {
            switches: self.switches,
            level: self.governor.as_ref().map(Governor::level),
            period: self.period,
            // The second program cannot be attached once all rights are given up.
            watch_exits: self.hides || self.options.drop_all,
            // The last state that was saved is older than the ledger where saving fails.
            goes_on: !self.save_fails,
        };
        let (pipeline, resumed) = counting::start(&self.config, resolver, start)?;
        self.ledger.begin(pipeline.plan().opened(), resumed);
        self.neighbours = neighbours(&self.config, pipeline.plan());
        self.own.health.sessions += 1;
        self.pipeline = Some(pipeline);
        self.govern();
        heap::give_back();
        Ok(())
    }

    /// Begins after a break. Where that fails it is tried again with the next window.
    fn begin_again(&mut self) {
        if let Err(error) = self.begin() {
            self.failed(&error);
        }
    }

    /// Counting failed.
    fn failed(&mut self, error: &dyn std::error::Error) {
        self.own.health.failures += 1;
        self.pipeline = None;
        let mut why = error.to_string();
        if self.options.drop_all {
            why += "; all capabilities were given up (--drop-all): start the agent again";
        }
        if self.said.as_ref() != Some(&why) {
            tracing::error!("{why}; counting begins again as soon as that works");
        }
        self.publish();
        self.say(Some(why));
    }

    fn say_off(&mut self) {
        let why = format!("off, since {} is there", self.directory.off().display());
        tracing::info!("{why}");
        self.say(Some(why));
    }

    fn say(&mut self, why: Option<String>) {
        self.published.say(why.clone());
        self.said = why;
    }

    /// Makes the report of the pipeline what is exported.
    fn settle(&mut self) {
        let Some(pipeline) = &mut self.pipeline else {
            return;
        };
        let started = self.own.started;
        let kernel_started = pipeline.kernel_time(started);
        // Starts stay as they were told first, also after a restart that goes on with the totals.
        let first = (self.boot_time + started).saturating_sub(kernel_started);
        let boot_time_now = pipeline.snapshot().boot_time;
        let boot_time = kept(self.ledger.boot_time.unwrap_or(first), boot_time_now);
        self.ledger.boot_time = Some(boot_time);
        self.boot_time = (boot_time + kernel_started).saturating_sub(started);
        let report = pipeline.report_mut();
        report.boot_time = boot_time;
        report.time = boot_time_now + report.end;
        if let Some(neighbours) = &mut self.neighbours {
            let verdicts = neighbours.judge(pipeline.report_mut());
            let begun = verdicts.iter().filter(|it| it.begins);
            begun.for_each(|verdict| say_verdict(pipeline.report(), verdict));
        }
        let most = self.config.series.max;
        let most = most.saturating_sub(Report::SERIES_OF_AGENT);
        let folded = folded::choose(pipeline.report(), most);
        self.own.health.folded = folded.rows.len() as u64;
        self.own.health.left_out = folded.left_out.len() as u64;
        let is_complete = self.ledger.settle(pipeline.report_mut(), &folded);
        if !is_complete {
            self.ledger
                .forget(&pipeline.live(), |process| pipeline.lives(process));
        }
    }

    /// Saves the totals, so that they go on after a restart. A failure is said once.
    fn save(&mut self) {
        let (Some(pipeline), Some(directory)) = (&self.pipeline, &mut self.state) else {
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
        self.own.health.failed_saves += u64::from(self.save_fails);
    }

    /// Publishes the last window, or nothing but what the agent says of itself.
    fn publish(&mut self) {
        let interval = self.interval();
        self.own.health.interval_nanos = Some(nanos(interval));
        self.own.health.off = self.switches.all.into();
        let mut health = self.own.now(&self.published);
        let counts = self.pipeline.is_some();
        let report = match &mut self.pipeline {
            Some(pipeline) => {
                health.began = pipeline.kernel_time(self.own.started);
                pipeline.report_mut()
            }
            None => {
                health.began = self.own.started;
                let now = now();
                self.boot_time = kept(self.boot_time, wall().saturating_sub(now));
                self.before = Report {
                    began: health.began,
                    start: now,
                    end: now,
                    boot_time: self.boot_time,
                    time: wall(),
                    ..Report::of_agent()
                };
                &mut self.before
            }
        };
        report.add_agent(&health);
        self.own.health.series = Some(Exposition::counts(report).iter().sum::<usize>() as u64);
        let exposition = &self.exposition;
        let report = &*report;
        self.published
            .window(interval, |dialect| exposition.write(report, dialect));
        if let Some(push) = &self.push {
            push.send(report);
        }
        if counts && let Some(json) = &mut self.json {
            json.write(report);
        }
    }

    /// Makes the formats that a scrape waits for, of the window that was published last.
    fn complete(&self) {
        let report = self.pipeline.as_ref().map(Pipeline::report);
        let report = report.filter(|report| !report.series.is_empty());
        let report = report.unwrap_or(&self.before);
        let exposition = &self.exposition;
        self.published
            .complete(|dialect| exposition.write(report, dialect));
    }
}
