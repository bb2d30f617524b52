//! Formulas over event counts: [`Formula::parse`] reads a text, [`Formula::evaluate`] gives a value
//! or the reason why there is none.
//!
//! Grammar, loosest first:
//!
//! ```text
//! value     = sum { "if" condition "else" sum }
//! condition = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]      alone: not 0
//! sum       = product { ("+" | "-") product }
//! product   = factor { ("*" | "/") factor }
//! factor    = [ "-" ] ( number | name | "(" value ")" |
//!                       ("min" | "max") "(" value "," value ... ")" )
//! ```
//!
//! A name is an event (letters, digits, `_` and dots) or one of the [`Implicit`] quantities. Counts
//! come through [`Input`], from windows of a session or from elsewhere. The module uses no other
//! module, because the fuzz target compiles it without the rest of the crate.

mod eval;
mod parse;
#[cfg(test)]
mod tests;
mod tree;

use self::{eval::Evaluation, tree::Expr};
pub use self::{
    eval::{Absent, EventCount, FormulaValue, Input, NoValue},
    tree::Implicit,
};

/// Maximum length of a formula in characters. Those of the built-in catalogue have fewer than 300;
/// perf's are longer, since they contain the formulas of the metrics that they name.
pub const MAX_LENGTH: usize = 64_000;

/// Maximum number of nested operators: each is a recursive call of the evaluation.
pub const MAX_OPERATORS: usize = 500;

/// Maximum nesting of parentheses.
pub const MAX_DEPTH: usize = 64;

/// A parsed formula.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    text: String,
    expr: Expr,
    events: Vec<String>,
    implicits: Vec<Implicit>,
}

/// Why a text is no formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    /// The text has only white space.
    #[error("the formula is empty: write one, such as `INST_RETIRED / CPU_CYCLES`")]
    Empty,
    /// The text is longer than [`MAX_LENGTH`].
    #[error(
        "the formula has {0} characters: {MAX_LENGTH} are the limit, split it into two metrics"
    )]
    TooLong(usize),
    /// The text is not in the grammar, or has a number that is too large.
    #[error("`{text}`: expected {expected} at column {column}")]
    Syntax {
        /// The whole formula.
        text: String,
        /// Column at which parsing stopped, in characters from 1.
        column: usize,
        /// What the grammar expects at that column.
        expected: String,
    },
}

impl Formula {
    /// Parses a formula.
    ///
    /// # Errors
    /// The first violation of the grammar, with its column.
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        let expr = parse::parse(text)?;
        let (mut events, mut implicits) = (Vec::new(), Vec::new());
        expr.visit(&mut |expr| match expr {
            Expr::Event(name) if !events.contains(name) => events.push(name.clone()),
            Expr::Implicit(implicit) if !implicits.contains(implicit) => implicits.push(*implicit),
            _ => {}
        });
        Ok(Self {
            text: text.trim().to_owned(),
            expr,
            events,
            implicits,
        })
    }

    /// The text as written, without spaces around it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The events that it uses, each once, in the order of their first use.
    #[must_use]
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// Whether it has an `if`, so that it may have a value without some of its events.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        let mut has_if = false;
        self.expr
            .visit(&mut |expr| has_if |= matches!(expr, Expr::If { .. }));
        has_if
    }

    /// The implicit quantities that it uses.
    #[must_use]
    pub fn implicits(&self) -> &[Implicit] {
        &self.implicits
    }

    /// Its value for these counts.
    ///
    /// # Errors
    /// The reason why there is no value; [`NoValue::Missing`] names all missing events.
    pub fn evaluate(&self, input: &impl Input) -> Result<FormulaValue, NoValue> {
        let value = Evaluation::new(input).evaluate(&self.expr);
        match value {
            Err(NoValue::Missing(_)) => {
                let is_missing = |name: &&String| input.event(name) == Err(Absent::Missing);
                let missing = self.events.iter().filter(is_missing).cloned();
                Err(NoValue::Missing(missing.collect()))
            }
            value => value,
        }
    }
}
