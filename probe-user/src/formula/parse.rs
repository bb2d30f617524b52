//! Parses the text of a formula to its tree.

use winnow::{
    ModalResult, Parser,
    ascii::{digit1, multispace0},
    combinator::{alt, cut_err, delimited, eof, fail, opt, preceded, terminated},
    error::{ContextError, ErrMode, StrContext, StrContextValue},
    token::{one_of, take_while},
};

use super::{
    FormulaError, MAX_DEPTH, MAX_LENGTH, MAX_OPERATORS,
    tree::{ComparisonOperator, Condition, Expr, Extreme, Implicit, Operator},
};

/// Words that cannot name an event.
const KEYWORDS: [&str; 4] = ["if", "else", "min", "max"];

/// What the grammar expects as an operand, for messages.
const VALUE: &str = "a number, an event, `min(`, `max(` or `(`";

pub(super) fn parse(text: &str) -> Result<Expr, FormulaError> {
    if text.trim().is_empty() {
        return Err(FormulaError::Empty);
    }
    let length = text.chars().count();
    if length > MAX_LENGTH {
        return Err(FormulaError::TooLong(length));
    }
    let syntax = |column, expected| FormulaError::Syntax {
        text: text.trim_end().to_owned(),
        column,
        expected,
    };
    // Each level is a recursive call. Without a limit, the text would determine the stack's depth.
    if let Some(column) = too_deep(text) {
        return Err(syntax(
            column,
            format!("no more than {MAX_DEPTH} open parentheses"),
        ));
    }
    if let Some(column) = too_many_operators(text) {
        return Err(syntax(
            column,
            format!("no more than {MAX_OPERATORS} operators in one another"),
        ));
    }
    whole.parse(text).map_err(|error| {
        let column = text[..error.char_span().start].chars().count() + 1;
        syntax(column, expectation(error.inner()))
    })
}

/// The column of the first parenthesis that is nested too deep; `None` if there is none.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.chars().enumerate() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(at + 1);
        }
    }
    None
}

/// The column of the first operator that may be deeper in the tree than the limit; `None` if there
/// is none. The depth of an operator is at most the number of operators before it in the same and
/// in the surrounding parentheses.
fn too_many_operators(text: &str) -> Option<usize> {
    let (mut total, mut in_current, mut in_outer) = (0_usize, 0_usize, Vec::new());
    let mut word = String::new();
    for (at, c) in text.chars().enumerate() {
        let is_operator = matches!(c, '+' | '-' | '*' | '/');
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') {
            word.push(c);
            continue;
        }
        let is_if = std::mem::take(&mut word).ends_with("if");
        if is_operator || is_if {
            in_current += 1;
            total += 1;
        }
        match c {
            '(' => in_outer.push(std::mem::take(&mut in_current)),
            ')' | ',' => {
                total -= in_current;
                in_current = match c {
                    ')' => in_outer.pop().unwrap_or_default(),
                    _ => 0,
                };
            }
            _ => {}
        }
        if total > MAX_OPERATORS {
            return Some(at + 1);
        }
    }
    None
}

/// The innermost expectation: the context closest to where parsing stopped.
fn expectation(error: &ContextError) -> String {
    let expected = error.context().find_map(|context| match context {
        StrContext::Expected(value) => Some(value.to_string()),
        _ => None,
    });
    expected.unwrap_or_else(|| VALUE.to_owned())
}

fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

fn whole(input: &mut &str) -> ModalResult<Expr> {
    terminated(
        value,
        eof.context(expected("an operator, `if` or the end of the formula")),
    )
    .parse_next(input)
}

/// Parses `a if b else c if d else e`: collects the cases in a loop, and nests them from the right.
fn value(input: &mut &str) -> ModalResult<Expr> {
    let mut last = sum.parse_next(input)?;
    let mut cases = Vec::new();
    while opt(keyword("if")).parse_next(input)?.is_some() {
        let condition = cut_err(condition).parse_next(input)?;
        cut_err(keyword("else"))
            .context(expected("an operator, a comparison or `else`"))
            .parse_next(input)?;
        let next = cut_err(sum).parse_next(input)?;
        cases.push((std::mem::replace(&mut last, next), condition));
    }
    let fold = |otherwise, (then, condition)| Expr::If {
        then: Box::new(then),
        condition: Box::new(condition),
        otherwise: Box::new(otherwise),
    };
    Ok(cases.into_iter().rev().fold(last, fold))
}

fn condition(input: &mut &str) -> ModalResult<Condition> {
    let left = sum.parse_next(input)?;
    let comparison = match opt(spaced(comparison)).parse_next(input)? {
        Some(sign) => Some((sign, cut_err(sum).parse_next(input)?)),
        None => None,
    };
    Ok(Condition { left, comparison })
}

fn comparison(input: &mut &str) -> ModalResult<ComparisonOperator> {
    for comparison in ComparisonOperator::ALL {
        if opt(comparison.sign()).parse_next(input)?.is_some() {
            return Ok(comparison);
        }
    }
    fail.parse_next(input)
}

fn sum(input: &mut &str) -> ModalResult<Expr> {
    let sign = alt(('+'.value(Operator::Add), '-'.value(Operator::Subtract)));
    chain(product, sign, input)
}

fn product(input: &mut &str) -> ModalResult<Expr> {
    let sign = alt(('*'.value(Operator::Multiply), '/'.value(Operator::Divide)));
    chain(factor, sign, input)
}

/// Parses operands between operators of one precedence, grouped to the left.
fn chain<'i>(
    mut operand: impl FnMut(&mut &'i str) -> ModalResult<Expr>,
    sign: impl Parser<&'i str, Operator, ErrMode<ContextError>>,
    input: &mut &'i str,
) -> ModalResult<Expr> {
    let mut sign = opt(spaced(sign));
    let mut left = operand(input)?;
    while let Some(operator) = sign.parse_next(input)? {
        let right = operand(input).map_err(ErrMode::cut)?;
        left = Expr::Binary(operator, Box::new(left), Box::new(right));
    }
    Ok(left)
}

fn factor(input: &mut &str) -> ModalResult<Expr> {
    let negative = opt(spaced('-')).parse_next(input)?.is_some();
    let inner = spaced(primary).context(expected(VALUE)).parse_next(input)?;
    Ok(if negative {
        Expr::Negate(Box::new(inner))
    } else {
        inner
    })
}

fn primary(input: &mut &str) -> ModalResult<Expr> {
    alt((number, parentheses, named)).parse_next(input)
}

fn number(input: &mut &str) -> ModalResult<Expr> {
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1);
    let digits = (digit1, opt(('.', digit1)), opt(exponent)).take();
    let number: f64 = digits.parse_to().parse_next(input)?;
    if number.is_finite() {
        Ok(Expr::Number(number))
    } else {
        cut_err(fail)
            .context(expected("a number below 1e308 in front"))
            .parse_next(input)
    }
}

fn parentheses(input: &mut &str) -> ModalResult<Expr> {
    '('.parse_next(input)?;
    let inner = cut_err(value).parse_next(input)?;
    cut_err(')')
        .context(expected("an operator or `)`"))
        .parse_next(input)?;
    Ok(inner)
}

fn named(input: &mut &str) -> ModalResult<Expr> {
    let before = *input;
    let name = word.parse_next(input)?;
    if let Some(implicit) = Implicit::named(name) {
        return Ok(Expr::Implicit(implicit));
    }
    match name {
        "min" => extreme(Extreme::Min, input),
        "max" => extreme(Extreme::Max, input),
        name if KEYWORDS.contains(&name) => {
            *input = before;
            fail.parse_next(input)
        }
        name => Ok(Expr::Event(name.to_owned())),
    }
}

fn extreme(extreme: Extreme, input: &mut &str) -> ModalResult<Expr> {
    cut_err(spaced('('))
        .context(expected("`(`"))
        .parse_next(input)?;
    let mut arguments = vec![cut_err(value).parse_next(input)?];
    let comma = cut_err(',').context(expected("an operator or `,`"));
    preceded(comma, cut_err(value))
        .map(|argument| arguments.push(argument))
        .parse_next(input)?;
    while opt(',').parse_next(input)?.is_some() {
        arguments.push(cut_err(value).parse_next(input)?);
    }
    cut_err(')')
        .context(expected("an operator, `,` or `)`"))
        .parse_next(input)?;
    Ok(Expr::Extreme(extreme, arguments))
}

fn keyword<'i>(wanted: &'static str) -> impl Parser<&'i str, &'i str, ErrMode<ContextError>> {
    spaced(word.verify(move |word: &str| word == wanted))
}

fn word<'i>(input: &mut &'i str) -> ModalResult<&'i str> {
    (
        one_of(|c: char| c.is_ascii_alphabetic() || c == '_'),
        take_while(0.., |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
        }),
    )
        .take()
        .parse_next(input)
}

/// A parser that skips spaces around what `parser` parses.
fn spaced<'i, O>(
    parser: impl Parser<&'i str, O, ErrMode<ContextError>>,
) -> impl Parser<&'i str, O, ErrMode<ContextError>> {
    delimited(multispace0, parser, multispace0)
}
