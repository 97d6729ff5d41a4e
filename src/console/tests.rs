use super::*;

/// A program that does nothing.
#[derive(Debug, Parser)]
struct Nothing {
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

#[test]
fn usage_errors_are_json_where_json_was_asked_for() {
    let error =
        Nothing::try_parse_from(["nothing", "--json", "--confg", "x"]).expect_err("refused");
    let mut out = Vec::new();
    assert_eq!(usage(&error, true, &mut out), Exit::Usage);
    let json: serde_json::Value = serde_json::from_slice(&out).expect("one JSON object");
    assert_eq!(json["exit_code"], 2);
    assert!(json["error"].as_str().is_some_and(|it| it.contains("--confg")), "{json}");
    let mut out = Vec::new();
    let help = Nothing::try_parse_from(["nothing", "--help"]).expect_err("help");
    assert_eq!((usage(&help, true, &mut out), out.len()), (Exit::Success, 0));
}
