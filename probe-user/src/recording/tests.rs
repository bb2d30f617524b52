//! The page names every column.

use super::columns::COLUMNS;

#[test]
fn every_column_is_documented_once_and_in_order() {
    let text = include_str!("../../../docs/recordings.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let columns: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    assert!(
        documented.starts_with(&columns),
        "docs/recordings.md lists {documented:?}, the file has {columns:?}"
    );
}
