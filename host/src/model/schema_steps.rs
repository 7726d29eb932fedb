//! How much work it is to hold an answer against a schema, counted before it is done: what checks it can be neither
//! bounded nor stopped, and a short schema can say a thousand things of each of a million items.
//!
//! It walks as the check would if nothing were wrong anywhere, so that it never counts less; and it ends when it has
//! counted too much, so that counting is no such work itself.

use serde_json::Value;

/// A second or two, in a build that is not optimised. An object with ten members, each of a type, is some thirty.
pub(super) const STEPS_MAX: u64 = 20_000_000;

/// How many steps it is at the most; `None`: more than `most`. The schema is one whose references end.
pub(super) fn steps(schema: &Value, answer: &Value, most: u64) -> Option<u64> {
    let mut counter = Counter { root: schema, steps: 0, most };
    counter.hold(schema, answer)?;
    Some(counter.steps)
}

struct Counter<'s> {
    root: &'s Value,
    steps: u64,
    most: u64,
}

impl<'s> Counter<'s> {
    fn spend(&mut self, steps: u64) -> Option<()> {
        self.steps = self.steps.saturating_add(steps);
        (self.steps <= self.most).then_some(())
    }

    fn hold(&mut self, schema: &'s Value, answer: &Value) -> Option<()> {
        self.spend(1)?;
        let Value::Object(members) = schema else { return Some(()) };
        let before = self.steps;
        for (keyword, says) in members {
            self.spend(1)?;
            self.hold_keyword(keyword, says, answer)?;
        }
        // What is evaluated by others is found by holding it against them once more, and once more to word what is
        // wrong.
        if members.contains_key("unevaluatedProperties") || members.contains_key("unevaluatedItems") {
            self.spend((self.steps - before).saturating_mul(2))?;
        }
        Some(())
    }

    fn hold_keyword(&mut self, keyword: &str, says: &'s Value, answer: &Value) -> Option<()> {
        match (keyword, says, answer) {
            ("$ref", Value::String(reference), _) => {
                let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
                target.map_or(Some(()), |target| self.hold(target, answer))
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas), _) => {
                schemas.iter().try_for_each(|schema| self.hold(schema, answer))
            }
            ("not" | "if" | "then" | "else", schema, _) => self.hold(schema, answer),
            ("enum" | "const", value, _) => self.compare(value, answer),
            ("type", Value::Array(types), _) => self.spend(types.len() as u64),
            ("items" | "contains" | "unevaluatedItems", schema, Value::Array(items)) => {
                items.iter().try_for_each(|item| self.hold(schema, item))
            }
            ("prefixItems", Value::Array(schemas), Value::Array(items)) => {
                schemas.iter().zip(items).try_for_each(|(schema, item)| self.hold(schema, item))
            }
            ("uniqueItems", Value::Bool(true), Value::Array(_)) => self.look_at(answer, 4),
            ("required", Value::Array(names), Value::Object(_)) => self.spend(names.len() as u64),
            ("dependentRequired", Value::Object(by_name), Value::Object(_)) => {
                by_name.values().try_for_each(|names| self.spend(names.as_array().map_or(1, Vec::len) as u64))
            }
            ("dependentSchemas", Value::Object(by_name), Value::Object(_)) => {
                by_name.values().try_for_each(|schema| self.hold(schema, answer))
            }
            ("properties", Value::Object(by_name), Value::Object(members)) => {
                self.spend(by_name.len() as u64)?;
                let present = by_name.iter().filter_map(|(name, schema)| Some((schema, members.get(name)?)));
                present.into_iter().try_for_each(|(schema, member)| self.hold(schema, member))
            }
            ("patternProperties", Value::Object(by_pattern), Value::Object(members)) => {
                by_pattern.iter().try_for_each(|(pattern, schema)| {
                    // Twice, since it decides as well what is additional.
                    let at_once = positions(pattern).saturating_mul(2);
                    members.keys().try_for_each(|name| self.match_text(at_once, name))?;
                    members.values().try_for_each(|member| self.hold(schema, member))
                })
            }
            ("additionalProperties" | "unevaluatedProperties", schema, Value::Object(members)) => {
                members.values().try_for_each(|member| self.hold(schema, member))
            }
            ("propertyNames", schema, Value::Object(members)) => {
                members.keys().try_for_each(|name| self.hold(schema, &Value::String(name.clone())))
            }
            ("pattern", Value::String(pattern), Value::String(text)) => {
                self.match_text(positions(pattern), text)
            }
            // A text's length is counted in characters, a number's digits are read.
            (_, _, Value::String(text)) => self.spend(text.len() as u64 / 64),
            (_, _, Value::Number(number)) => self.spend(number.as_str().len() as u64 / 8),
            _ => Some(()),
        }
    }

    /// Each byte may be looked at in every place of the pattern.
    fn match_text(&mut self, places: u64, text: &str) -> Option<()> {
        self.spend((text.len() as u64 + 1).saturating_mul(places))
    }

    /// With each of several values, if it says several.
    fn compare(&mut self, said: &'s Value, answer: &Value) -> Option<()> {
        match (said, answer) {
            (Value::Array(values), _) => values.iter().try_for_each(|value| self.compare_one(value, answer)),
            _ => self.compare_one(said, answer),
        }?;
        self.compare_one(said, answer)
    }

    /// As far as they are alike.
    fn compare_one(&mut self, one: &Value, other: &Value) -> Option<()> {
        self.spend(1)?;
        match (one, other) {
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                one.iter().zip(other).try_for_each(|(one, other)| self.compare_one(one, other))
            }
            (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
                one.iter().try_for_each(|(name, one)| match other.get(name) {
                    Some(other) => self.compare_one(one, other),
                    None => self.spend(1),
                })
            }
            (Value::String(one), Value::String(other)) => self.spend(one.len().min(other.len()) as u64 / 64),
            (Value::Number(one), Value::Number(other)) => {
                self.spend((one.as_str().len() + other.as_str().len()) as u64 / 8)
            }
            _ => Some(()),
        }
    }

    /// At every value in it, so many times.
    fn look_at(&mut self, value: &Value, times: u64) -> Option<()> {
        self.spend(times)?;
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.look_at(item, times)),
            Value::Object(members) => members.values().try_for_each(|member| self.look_at(member, times)),
            Value::String(text) => self.spend(text.len() as u64 / 64 * times),
            Value::Number(number) => self.spend(number.as_str().len() as u64 / 8 * times),
            _ => Some(()),
        }
    }
}

/// How many places a pattern has that match something, repetitions written out: one can be in all of them at once.
fn positions(pattern: &str) -> u64 {
    let mut rest = pattern.chars();
    let mut places: u64 = 1;
    // A group that was closed too often is no pattern; it counts for what stands after it, too.
    while let Some(more) = group(&mut rest, 0) {
        places = places.saturating_add(more);
    }
    places
}

/// Up to the end of the group; `None`: there is nothing more.
fn group(rest: &mut std::str::Chars<'_>, depth: u32) -> Option<u64> {
    let (mut all, mut last, mut is_empty) = (0_u64, 0_u64, true);
    while let Some(next) = rest.next() {
        is_empty = false;
        last = match next {
            ')' => return Some(all),
            // Deeper than a pattern that compiles.
            '(' if depth < 250 => group(rest, depth + 1).unwrap_or(0),
            '{' => {
                let (times, _) = rest.as_str().split_once('}')?;
                let digits = |text: &str| text.trim().parse::<u64>().ok();
                let times = match times.split_once(',') {
                    // At least so often, and then one that goes round.
                    Some((least, most)) => {
                        digits(most).or(digits(least).map(|least| least.saturating_add(1)))
                    }
                    None => digits(times),
                };
                all = all.saturating_add(last.saturating_mul(times.unwrap_or(1).saturating_sub(1)));
                last = last.saturating_mul(times.unwrap_or(1).max(1));
                rest.find(|&c| c == '}');
                continue;
            }
            '*' | '+' | '?' | '|' | '^' | '$' => continue,
            '\\' => {
                let class = rest.next();
                if matches!(class, Some('p' | 'P' | 'x' | 'u' | 'U')) && rest.as_str().starts_with('{') {
                    rest.find(|&c| c == '}');
                }
                1
            }
            '[' => {
                class(rest);
                1
            }
            _ => 1,
        };
        all = all.saturating_add(last);
    }
    (!is_empty).then_some(all)
}

/// Past the end of a class, which may have others in it.
fn class(rest: &mut std::str::Chars<'_>) {
    let (mut open, mut is_first) = (1, true);
    while open > 0
        && let Some(next) = rest.next()
    {
        match next {
            '\\' => drop(rest.next()),
            '^' if is_first => continue,
            '[' => open += 1,
            // The first is a member.
            ']' if !is_first => open -= 1,
            _ => {}
        }
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_pattern_are_those_of_its_repetitions_written_out() {
        for (pattern, places) in [
            ("", 1),
            ("abc", 4),
            ("^a*(b|c)+$", 4),
            ("a{5}", 6),
            ("a{2,5}b", 7),
            ("a{3,}", 5),
            ("(ab{10}){3}", 34),
            ("((a{10}){10}){10}", 1_001),
            (r"\d{4}-\d{2}", 8),
            (r"[a-z{5}(]{3}", 4),
            (r"[]a]{3}[^]]{2}", 6),
            (r"\p{L}{4}\x{41}", 6),
            ("(a|b)*a(a|b){200}c", 405),
            ("a)b", 3),
            ("(((", 1),
        ] {
            assert_eq!(positions(pattern), places, "{pattern}");
        }
        assert_eq!(positions("((a{9999}){9999}){9999}{9999}{9999}"), u64::MAX);
    }
}
