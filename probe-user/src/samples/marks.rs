//! Merges the tags and phases of an unfinished recording's parts. Each part has the tags and phases
//! that began or ended since the previous part.

use std::collections::{HashMap, hash_map::Entry};

use serde_json::{Map, Value};

/// Metadata keys of the lists that are spread over the parts.
const KEYS: [&str; 2] = ["tags", "phases"];

/// JSON key of an item's end; its value is null if the item has not ended.
const UNTIL: &str = "until_ns";

/// A merged list of tags, or of phases.
#[derive(Default)]
struct MergedList {
    items: Vec<Map<String, Value>>,
    /// Index into `items`, by all fields of the item except its end.
    positions: HashMap<String, usize>,
}

impl MergedList {
    /// Adds a part's list; invalid JSON counts as an empty list. Items may be known already, since
    /// parts of several threads have the same items.
    fn add(&mut self, text: &str) {
        let list: Vec<Map<String, Value>> = serde_json::from_str(text).unwrap_or_default();
        for item in list {
            let mut key = item.clone();
            let has_ended = key.remove(UNTIL).is_some_and(|until| !until.is_null());
            match self.positions.entry(Value::Object(key).to_string()) {
                Entry::Occupied(position) if has_ended => self.items[*position.get()] = item,
                Entry::Occupied(_) => {}
                Entry::Vacant(vacant) => {
                    vacant.insert(self.items.len());
                    self.items.push(item);
                }
            }
        }
    }
}

/// The merged lists of all parts so far.
#[derive(Default)]
pub(super) struct Marks([MergedList; KEYS.len()]);

impl Marks {
    /// Adds the lists of a part.
    pub(super) fn add(&mut self, about: &[(String, String)]) {
        for (key, list) in KEYS.iter().zip(&mut self.0) {
            let text = about.iter().find(|(name, _)| name == key);
            if let Some((_, text)) = text {
                list.add(text);
            }
        }
    }

    /// Replaces the lists in the metadata `about` by the merged lists.
    pub(super) fn replace_in(self, about: &mut [(String, String)]) {
        for (key, list) in KEYS.iter().zip(self.0) {
            if let Some((_, text)) = about.iter_mut().find(|(name, _)| name == key) {
                let items = list.items.into_iter().map(Value::Object);
                *text = Value::Array(items.collect()).to_string();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_in_a_later_part_ends_an_item_of_an_earlier_part() {
        let phase = |name: &str, since: &str, until: Option<&str>| {
            json!({
                "pid": 1, "tid": 2, "name": name, "since_ns": since, "until_ns": until,
            })
        };
        let part = |phases: &[Value]| {
            let text = Value::Array(phases.to_vec()).to_string();
            vec![
                ("phases".to_owned(), text),
                ("host".to_owned(), "a".to_owned()),
            ]
        };
        let parts = [
            part(&[phase("a", "1", None), phase("a/b", "2", Some("3"))]),
            // Another thread's part repeats items.
            part(&[
                phase("a", "1", None),
                phase("a/b", "2", Some("3")),
                phase("c", "4", None),
            ]),
            part(&[phase("a", "1", Some("9")), phase("a", "10", None)]),
            vec![("phases".to_owned(), "damaged".to_owned())],
        ];
        let mut marks = Marks::default();
        for part in &parts {
            marks.add(part);
        }
        let mut about = parts[0].clone();
        marks.replace_in(&mut about);
        let phases: Vec<Value> = serde_json::from_str(&about[0].1).unwrap();
        assert_eq!(
            phases,
            [
                phase("a", "1", Some("9")),
                phase("a/b", "2", Some("3")),
                phase("c", "4", None),
                phase("a", "10", None),
            ]
        );
        assert_eq!(about[1].1, "a");
    }
}
