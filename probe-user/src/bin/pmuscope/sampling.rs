//! The sampled events of `hot` and `stat`, from the user's lists.

use anyhow::Result;
use probe_user::{
    event::sampling::{SampledEvent, max_sample_rate, sampled},
    machine::Pmus,
    session::{SamplingConfig, sampling::DEFAULT_SAMPLE_BUDGET},
};

/// The settings of a session that samples the events of these lists; with `addresses`, also the
/// addresses of samples.
pub(crate) fn config(
    lists: &[String],
    pmus: &Pmus,
    budget: Option<f64>,
    addresses: bool,
) -> Result<SamplingConfig> {
    let events = sampled(&lists.join(","), pmus, max_sample_rate())?;
    if addresses {
        for event in events.iter().filter(|event| event.skids()) {
            tracing::info!("{}", skid_message(event));
        }
    }
    Ok(SamplingConfig {
        events,
        budget: Some(budget.unwrap_or(DEFAULT_SAMPLE_BUDGET)),
        addresses,
        pages: addresses,
        ..SamplingConfig::default()
    })
}

fn skid_message(event: &SampledEvent) -> String {
    format!(
        "addresses of {} are those at which the interrupt came, some instructions behind the \
         cause (skid); `:p` samples precisely where the core can",
        event.name
    )
}

/// Parses a percentage: `0.5%` as 0.005.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    match number {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("a budget is a share above 0% up to 100%, such as 0.5%".to_owned()),
    }
}
