//! The graphs of all golden models as text, so that a review shows what changes in a data flow.
//!
//! `NIBBLE_UPDATE_DUMPS=1 cargo test -p nibble-model --test dumps` writes them anew.

use nibble_testkit::workspace_root;
use std::path::Path;

#[test]
fn graphs_are_those_that_were_reviewed() {
    let dumps = Path::new(env!("CARGO_MANIFEST_DIR")).join("dumps");
    let update = std::env::var_os("NIBBLE_UPDATE_DUMPS").is_some();
    let mut seen = 0;
    for entry in std::fs::read_dir(workspace_root().join("golden/models")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let checkpoint = nibble_format::open(&entry.path(), &nibble_quant::Registry::default()).unwrap();
        let found = nibble_model::build(&checkpoint).unwrap().graph.to_string();
        let path = dumps.join(name + ".txt");
        if update {
            std::fs::write(&path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{}:{}", path.display(), line + 1);
        }
        assert_eq!(found.lines().count(), expected.lines().count(), "lines of {}", path.display());
        seen += 1;
    }
    assert!(seen > 10);
}
