use super::*;

fn source(kind: SourceKind, depends_on: &[&str]) -> SourceConfig {
    let depends_on = depends_on.iter().map(|name| (*name).to_owned()).collect();
    let file = (kind == SourceKind::Table).then(|| PathBuf::from("rows.jsonl"));
    SourceConfig { depends_on, file, ..SourceConfig::of(kind) }
}

fn sources(of: &[(&str, SourceConfig)]) -> Result<Sources, SourcesError> {
    Sources::new(&of.iter().map(|(name, source)| ((*name).to_owned(), source.clone())).collect())
}

fn names<'s>(sources: impl IntoIterator<Item = &'s Source>) -> Vec<&'s str> {
    sources.into_iter().map(|source| source.name.as_str()).collect()
}

#[test]
fn a_source_is_asked_behind_what_it_depends_on() {
    use SourceKind::{BotPersona, Documents, Graph, Table};
    let ordered = sources(&[
        ("alpha", source(Table, &["zeta"])),
        ("facts", source(Graph, &[])),
        ("manuals", source(Documents, &[])),
        ("zeta", source(BotPersona, &["manuals"])),
    ]);
    let ordered = ordered.expect("an order");
    assert_eq!(names(ordered.iter()), ["facts", "manuals", "zeta", "alpha"]);
    let needed = ordered.with_dependencies(&["alpha"].into());
    assert_eq!(names(needed), ["manuals", "zeta", "alpha"], "and what those depend on");
    assert_eq!(names(ordered.with_dependencies(&["facts", "nobody"].into())), ["facts"]);
    let plan = |names: &[&str]| Plan(names.iter().map(|name| (*name).into()).collect());
    assert!(ordered.have_facts(&plan(&["zeta", "facts"])));
    assert!(!ordered.have_facts(&plan(&["zeta", "nobody"])));
}

#[test]
fn what_is_no_order_is_refused_by_key() {
    use SourceKind::{BotPersona, Documents, Graph, Table, UserPersona};
    let own = SourceConfig { sentences: vec!["I sail.".to_owned()], ..source(BotPersona, &[]) };
    let no_file = SourceConfig { file: None, ..source(Table, &[]) };
    let a_file = SourceConfig { file: Some(PathBuf::from("x")), ..source(Documents, &[]) };
    let said = SourceConfig { kind: Documents, ..own.clone() };
    let spoken = SourceConfig { speak: Some(false), ..source(Documents, &[]) };
    for (of, says) in [
        (vec![("a", source(Documents, &["b"])), ("b", source(BotPersona, &["a"]))], "circle"),
        (vec![("a", source(Table, &["a"]))], "sources.a.depends_on: sources depend on each other"),
        (vec![("a", source(Table, &["b"]))], "sources.a.depends_on: no source has"),
        (vec![("a", own.clone()), ("b", source(Graph, &["a"]))], "sources.b.depends_on: a graph"),
        (
            vec![("a", source(Graph, &[])), ("b", source(Graph, &[]))],
            "sources.b.kind: another source",
        ),
        (vec![("a", source(Documents, &[])), ("b", source(Documents, &[]))], "sources.b.kind"),
        (vec![("a", source(UserPersona, &[])), ("b", source(BotPersona, &[]))], "sources.b.sent"),
        (vec![("a", no_file)], "sources.a.file: a table needs"),
        (vec![("a", a_file)], "sources.a.file: only a table"),
        (vec![("a", said)], "sources.a.sentences: only a persona"),
        (vec![("a", spoken)], "sources.a.speak: only a graph"),
    ] {
        let error = sources(&of).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(sources(&[("a", source(UserPersona, &[])), ("b", own)]).is_ok());
}
