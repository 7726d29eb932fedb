//! JSON on the command line: the text itself, `@FILE`, or `-` for standard input. Strict: what two
//! readers could understand differently is refused, with the reason.

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde_json::Value;

use super::failure::Failure;
use crate::model::{InterruptId, Json, Kind, Limits};

/// A field of [`Limits`] and its value.
pub type Bound = (&'static str, u64);

/// Reads what an argument stands for. `what` names the argument in errors.
pub fn json(what: &str, argument: &str, limits: &Limits, bound: Bound) -> Result<Json, Failure> {
    let refuse = |why: String| Err(Failure::argument(format!("{what}: {why}")));
    let (text, source) = match argument.strip_prefix('@') {
        None if argument == "-" => match text(io::stdin(), bound) {
            Ok(text) => (text, Some("standard input")),
            Err(error) => return refuse(format!("cannot read standard input: {error}")),
        },
        None => (argument.to_owned(), None),
        Some("") => return refuse("'@' is followed by a file's name".into()),
        Some(file) => match std::fs::File::open(file).and_then(|open| text(open, bound)) {
            Ok(text) => (text, Some(file)),
            Err(error) => return refuse(format!("cannot read {file}: {error}")),
        },
    };
    let whose = source.map_or(what.to_owned(), |source| format!("{what} ({source})"));
    limits.take_json(&text, &whose, bound).map_err(|mut error| {
        if source.is_none() && error.kind == Kind::Invalid {
            error.message.push_str(&hint(argument));
        }
        Failure::Argument(error)
    })
}

/// A map from interrupt ids to answers.
pub fn answers(
    what: &str,
    argument: &str,
    limits: &Limits,
    bound: Bound,
) -> Result<BTreeMap<InterruptId, Value>, Failure> {
    let map = json(what, argument, limits, bound)?;
    let refuse = |why: String| Failure::argument(format!("{what}: {why}"));
    let members = map.members().ok_or_else(|| {
        refuse(format!("it takes an object from interrupt ids to answers; this is {}", map.kind()))
    })?;
    let mut answers = BTreeMap::new();
    for (key, value) in members {
        let id: InterruptId =
            key.parse().map_err(|error: crate::model::ids::InvalidName| refuse(error.to_string()))?;
        if answers.insert(id, value.value()).is_some() {
            return Err(refuse(format!("the interrupt {id} stands twice, differently spelled")));
        }
    }
    Ok(answers)
}

/// One byte more than is taken, so that what is too large is refused as such and not read to its end.
fn text(source: impl Read, (_, bytes_max): Bound) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        // It is refused for its length, wherever it was cut.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is no UTF-8 text"))
}

/// Most who write no JSON here meant a string.
fn hint(argument: &str) -> String {
    if argument.contains('<') && argument.contains('>') {
        return "; what stands in <…> is for you to fill in, and a string has quotes: \"like this\""
            .to_owned();
    }
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '.' | '-' | '!' | '?' | ',');
    if !argument.is_empty() && argument.chars().all(is_word) {
        format!("; a string has quotes of its own: '\"{argument}\"'")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(argument: &str) -> String {
        let limits = Limits { json_depth: 4, ..Limits::default() };
        match json("VALUE", argument, &limits, ("answer_bytes", 40)) {
            Ok(json) => json.to_string(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn a_value_is_json_and_nothing_else() {
        assert_eq!(said(r#"{"b": 1.50, "a": null}"#), r#"{"a":null,"b":1.50}"#);
        assert_eq!(said("-7"), "-7");
        for (argument, part) in [
            ("approved", r#"'"approved"'"#),
            (r#"{"reason":<string>}"#, "is for you to fill in"),
            ("[1,", "VALUE is no JSON"),
            (r#"{"a":1,"a":2}"#, "stands twice"),
            ("[[[[[1]]]]]", "deeper than 4"),
            ("@", "a file's name"),
            ("@/nowhere/x.json", "cannot read /nowhere/x.json"),
            (&format!("\"{}\"", "x".repeat(40)), "at most 40 are taken (answer_bytes)"),
        ] {
            let said = said(argument);
            assert!(said.contains(part), "{argument}: {said}");
        }
        assert!(!said("[1,").contains("quotes"), "a broken list is no forgotten string");
    }

    #[test]
    fn answers_are_by_id() {
        let answers = |map: &str| answers("--answers", map, &Limits::default(), ("state_bytes", 1_000));
        let id = "00000000-0000-0000-0000-00000000000a";
        let map = answers(&format!(r#"{{"{id}": false}}"#)).unwrap();
        assert_eq!(map[&id.parse().unwrap()], Value::Bool(false));
        assert!(answers("[]").is_err());
        assert!(answers(r#"{"one": 1}"#).is_err());
        let twice = format!(r#"{{"{id}": 1, "{}": 2}}"#, id.to_uppercase());
        assert!(answers(&twice).is_err());
    }
}
