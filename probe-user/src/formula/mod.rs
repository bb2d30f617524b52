//! Formulas over event counts: text to tree, and a tree to a value or the reason why there is none.
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
//! A name is an event (letters, digits, `_` and dots) or one of the [`Implicit`] quantities.
//! Nothing here knows PMUs or files: counts come through [`Input`], so that windows of a live
//! session and counts taken elsewhere go the same way. The module stands on its own (no path
//! leaves it), because the fuzz target compiles it without the rest of the crate.

mod eval;
mod parse;
#[cfg(test)]
mod tests;
mod tree;

use self::{eval::Evaluation, tree::Expr};
pub use self::{
    eval::{Absent, Input, NoValue, Sample, Value},
    tree::Implicit,
};

/// The longest formula that is read, in characters; the longest of the documents has 180.
pub const MAX_LENGTH: usize = 1_000;

/// The deepest nesting of parentheses that is read.
pub const MAX_DEPTH: usize = 32;

/// A formula that was read without error.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    text: String,
    expr: Expr,
    events: Vec<String>,
    implicits: Vec<Implicit>,
}

/// What is wrong with the text of a formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    /// Nothing but white space.
    #[error("the formula is empty: write one, such as `INST_RETIRED / CPU_CYCLES`")]
    Empty,
    /// Longer than [`MAX_LENGTH`].
    #[error(
        "the formula has {0} characters: {MAX_LENGTH} are the limit, split it into two metrics"
    )]
    TooLong(usize),
    /// Not in the grammar, or a number too large.
    #[error("`{text}`: expected {expected} at column {column}")]
    Syntax {
        /// The whole formula.
        text: String,
        /// Where reading stopped, counted in characters from 1.
        column: usize,
        /// What could stand there.
        expected: String,
    },
}

impl Formula {
    /// Reads a formula.
    ///
    /// # Errors
    /// The first thing that is not in the grammar, with its column.
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

    /// As written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The events it needs, each once, in the order of their first use.
    #[must_use]
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// Whether it has an `if`, so that it may have a value without some of its events.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        let mut conditional = false;
        self.expr
            .visit(&mut |expr| conditional |= matches!(expr, Expr::If { .. }));
        conditional
    }

    /// The quantities it needs beside events.
    #[must_use]
    pub fn implicits(&self) -> &[Implicit] {
        &self.implicits
    }

    /// Its value for these counts.
    ///
    /// # Errors
    /// The reason why there is no value; of missing events, all of them.
    pub fn evaluate(&self, input: &impl Input) -> Result<Value, NoValue> {
        let value = Evaluation::new(input).run(&self.expr);
        match value {
            Err(NoValue::Missing(_)) => {
                let missing = |name: &&String| input.event(name) == Err(Absent::Missing);
                let missing = self.events.iter().filter(missing).cloned();
                Err(NoValue::Missing(missing.collect()))
            }
            value => value,
        }
    }
}
