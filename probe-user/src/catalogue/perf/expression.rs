//! Parses metric expressions of perf's JSON files (tools/perf/util/expr.y) and of intel/perfmon.
//!
//! Precedence, loosest first: `if`/`else`, `|`, `^`, `&`, comparisons, `+ -`, `* /`, unary `-`.

use std::rc::Rc;

use super::node::{Node, Operator};

/// Maximum length of an expression in bytes; the longest of the kernel's files has 1,300.
const MAX_LENGTH: usize = 16_000;

/// Maximum nesting of parentheses and signs: each level is a recursive call.
const MAX_DEPTH: usize = 48;

/// Binary operators by precedence, loosest first. In a level, `<=` comes before `<`, which it
/// begins with.
const LEVELS: [&[(&str, Operator)]; 6] = [
    &[("|", Operator::Or)],
    &[("^", Operator::Xor)],
    &[("&", Operator::And)],
    &[
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("==", Operator::Equal),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide)],
];

/// Parses an expression.
///
/// # Errors
/// Why it cannot be parsed, as part of a sentence.
pub(super) fn parse(text: &str) -> Result<Rc<Node>, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!(
            "its expression has {} characters, more than {MAX_LENGTH}",
            text.len()
        ));
    }
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    let node = parser.parse_choice()?;
    parser.skip_space();
    match parser.at == text.len() {
        true => Ok(node),
        false => Err(parser.unexpected()),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Index of a character boundary.
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn unexpected(&self) -> String {
        let column = self.text.get(..self.at).map_or(0, |it| it.chars().count()) + 1;
        format!("its expression is not in perf's grammar from column {column}")
    }

    /// Skips the sign if it is next. Returns whether it was.
    fn accept(&mut self, sign: &str) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(sign);
        if is_next {
            self.at += sign.len();
        }
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.accept(sign) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    /// Skips the word if it is the whole next symbol. Returns whether it was.
    fn accept_word(&mut self, word: &str) -> bool {
        self.skip_space();
        let is_next = symbol(self.rest()) == word;
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    /// Parses `a if b else c if d else e`: collects the cases in a loop, and nests them from the
    /// right.
    fn parse_choice(&mut self) -> Result<Rc<Node>, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!(
                "its expression is nested deeper than {MAX_DEPTH} levels"
            ));
        }
        let mut last = self.parse_level(0)?;
        let mut cases = Vec::new();
        while self.accept_word("if") {
            let condition = self.parse_level(0)?;
            if !self.accept_word("else") {
                return Err(self.unexpected());
            }
            let next = self.parse_level(0)?;
            cases.push((std::mem::replace(&mut last, next), condition));
        }
        self.depth -= 1;
        let fold = |otherwise, (then, condition)| Rc::new(Node::If(then, condition, otherwise));
        Ok(cases.into_iter().rev().fold(last, fold))
    }

    /// Parses operands between operators of one precedence, grouped to the left.
    fn parse_level(&mut self, level: usize) -> Result<Rc<Node>, String> {
        let Some(operators) = LEVELS.get(level) else {
            return self.parse_operand();
        };
        let mut left = self.parse_level(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.accept(sign)) {
            let right = self.parse_level(level + 1)?;
            left = Rc::new(Node::Binary(*operator, left, right));
        }
        Ok(left)
    }

    fn parse_operand(&mut self) -> Result<Rc<Node>, String> {
        if self.accept("-") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.unexpected());
            }
            let inner = self.parse_operand()?;
            self.depth -= 1;
            let zero = Rc::new(Node::Number(0.0));
            return Ok(Rc::new(Node::Binary(Operator::Subtract, zero, inner)));
        }
        for (open, close) in [("(", ")"), ("[", "]")] {
            if self.accept(open) {
                let inner = self.parse_choice()?;
                self.expect(close)?;
                return Ok(inner);
            }
        }
        self.skip_space();
        if let Some(literal) = self.rest().strip_prefix('#') {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            let end = literal.find(|c| !is_name(c)).unwrap_or(literal.len());
            self.at += 1 + end;
            let name = literal.get(..end).unwrap_or_default();
            return Ok(Rc::new(Node::Literal(name.to_owned())));
        }
        let (number, name) = (number(self.rest()), symbol(self.rest()));
        if !number.is_empty() && number.len() >= name.len() {
            self.at += number.len();
            let value: f64 = number.parse().map_err(|_| self.unexpected())?;
            return match value.is_finite() {
                true => Ok(Rc::new(Node::Number(value))),
                false => Err(self.unexpected()),
            };
        }
        if name.is_empty() || ["if", "else"].contains(&name) {
            return Err(self.unexpected());
        }
        self.at += name.len();
        self.parse_named(name)
    }

    /// Parses the rest of a name: the arguments, if it is called.
    fn parse_named(&mut self, name: &str) -> Result<Rc<Node>, String> {
        let mut arguments = Vec::new();
        if self.accept("(") {
            loop {
                arguments.push(self.parse_choice()?);
                if !self.accept(",") {
                    break;
                }
            }
            self.expect(")")?;
        }
        let node = match (name, &arguments[..]) {
            (_, []) => Node::Name(normalized(name)),
            ("min", [_, _, ..]) => Node::Min(arguments),
            ("max", [_, _, ..]) => Node::Max(arguments),
            ("d_ratio", [a, b]) => Node::Binary(Operator::Divide, a.clone(), b.clone()),
            ("has_event", [event]) => Node::HasEvent(event.clone()),
            ("source_count", [_]) => Node::Literal("source_count".to_owned()),
            ("strcmp_cpuid_str", [id]) => match &**id {
                Node::Name(id) => Node::IsCpu(id.clone()),
                _ => return Err(self.unexpected()),
            },
            _ => {
                return Err(format!(
                    "its expression calls {name}, which is no function here"
                ));
            }
        };
        Ok(Rc::new(node))
    }
}

/// The number that the text begins with: digits, a point, an exponent.
fn number(text: &str) -> &str {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        rest.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len())
    };
    let mut end = digits(0);
    if text.get(end..).is_some_and(|rest| rest.starts_with('.')) {
        let decimals = digits(end + 1);
        if end + decimals == 0 {
            return "";
        }
        end += 1 + decimals;
    }
    if end > 0
        && text
            .get(end..)
            .is_some_and(|rest| rest.starts_with(['e', 'E']))
    {
        let sign = text
            .get(end + 1..)
            .is_some_and(|rest| rest.starts_with(['+', '-']));
        let first = end + 1 + usize::from(sign);
        match digits(first) {
            0 => {}
            exponent => end = first + exponent,
        }
    }
    text.get(..end).unwrap_or_default()
}

/// The symbol that the text begins with: letters, digits, `_.:@?`, and anything after a backslash.
fn symbol(text: &str) -> &str {
    let mut end = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        let is_part = c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '@' | '?');
        if !(escaped || is_part || c == '\\') {
            break;
        }
        escaped = c == '\\' && !escaped;
        end = at + c.len_utf8();
    }
    text.get(..end).unwrap_or_default()
}

/// The name as perf prints it: `@` is `/`, and backslashes are left out.
fn normalized(symbol: &str) -> String {
    symbol.replace('\\', "").replace('@', "/")
}
