//! Checks for client settings that this build does not support. They come before a client is
//! created, since the client's own message names flags of its C compiler.

use rdkafka::ClientConfig;

use super::super::LogError;
use super::ClientSettings;

/// The two names of one setting.
const MECHANISM: [&str; 2] = ["sasl.mechanism", "sasl.mechanisms"];

/// Refuses settings that need a cargo feature which this build lacks.
pub(super) fn check(client: &ClientSettings) -> Result<(), LogError> {
    check_against(client, &built_in())
}

fn check_against(client: &ClientSettings, built_in: &str) -> Result<(), LogError> {
    for (key, value) in &client.0 {
        let Some((needs, feature)) = needs(key, &value.to_ascii_lowercase()) else { continue };
        if built_in.split(',').any(|found| found.trim() == needs) {
            continue;
        }
        return Err(LogError::Refused(format!(
            "`log.kafka.client.{key}` asks for {needs}, which this build of turnstream lacks; take the \
             image, or build with `cargo build --release --features {feature}` (docs/kafka.md says \
             what that needs)"
        )));
    }
    let protocol = client.0.get("security.protocol");
    let logs_in = protocol.is_some_and(|value| value.to_ascii_lowercase().starts_with("sasl"));
    if logs_in && !MECHANISM.iter().any(|key| client.0.contains_key(*key)) {
        return Err(LogError::Refused(
            "`log.kafka.client.security.protocol` asks for a log-in, and no `sasl.mechanism` says \
             which kind; set it, to PLAIN or SCRAM-SHA-512 for instance"
                .to_owned(),
        ));
    }
    Ok(())
}

/// The client's name for the ability that a setting needs, and the cargo feature that adds it.
fn needs(key: &str, value: &str) -> Option<(&'static str, &'static str)> {
    match (key, value) {
        ("security.protocol", "ssl" | "sasl_ssl") => Some(("ssl", "ssl")),
        (key, _) if key.starts_with("ssl.") => Some(("ssl", "ssl")),
        ("sasl.mechanism" | "sasl.mechanisms", mechanism) => match mechanism {
            "scram-sha-256" | "scram-sha-512" => Some(("sasl_scram", "ssl")),
            "oauthbearer" => Some(("sasl_oauthbearer", "ssl")),
            "gssapi" => Some(("sasl_gssapi", "sasl")),
            _ => None,
        },
        ("sasl.oauthbearer.method", "oidc") => Some(("oidc", "sasl")),
        _ => None,
    }
}

/// The abilities that the client was built with, by its own names, separated by commas.
fn built_in() -> String {
    let native = ClientConfig::new().create_native_config();
    native.and_then(|native| native.get("builtin.features")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(key: &str, value: &str, built_in: &str) -> Option<String> {
        let client = ClientSettings([(key.to_owned(), value.to_owned())].into());
        check_against(&client, built_in).err().map(|error| error.to_string())
    }

    #[test]
    fn a_missing_feature_is_named() {
        let bare = "gzip,snappy,sasl,regex,lz4,sasl_plain,plugins";
        for (key, value, feature) in [
            ("security.protocol", "SASL_SSL", "--features ssl"),
            ("security.protocol", "ssl", "--features ssl"),
            ("ssl.ca.location", "/etc/ssl/ca.pem", "--features ssl"),
            ("sasl.mechanism", "SCRAM-SHA-512", "--features ssl"),
            ("sasl.mechanisms", "OAUTHBEARER", "--features ssl"),
            ("sasl.mechanism", "GSSAPI", "--features sasl"),
            ("sasl.oauthbearer.method", "OIDC", "--features sasl"),
        ] {
            let said = refusal(key, value, bare).unwrap_or_else(|| panic!("{key}={value}"));
            assert!(said.contains(key) && said.contains(feature), "{said}");
            let everything = "ssl, sasl_scram, sasl_oauthbearer, sasl_gssapi, oidc";
            let said = refusal(key, value, everything).unwrap_or_default();
            assert!(!said.contains("this build"), "{said}");
        }
        for (key, value) in [
            ("security.protocol", "PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("compression.type", "lz4"),
        ] {
            assert_eq!(refusal(key, value, bare), None);
        }
    }

    #[test]
    fn a_log_in_needs_a_mechanism() {
        let said = refusal("security.protocol", "SASL_PLAINTEXT", "sasl_plain").expect("refused");
        assert!(said.contains("`sasl.mechanism`"), "{said}");
    }

    #[test]
    fn the_client_says_what_it_was_built_with() {
        let built_in = built_in();
        let has = |name: &str| built_in.split(',').any(|found| found.trim() == name);
        assert!(has("sasl_plain") && has("gzip") && has("zstd"), "{built_in}");
        assert_eq!(has("ssl"), cfg!(feature = "ssl"), "{built_in}");
        assert_eq!(has("sasl_scram"), cfg!(feature = "ssl"), "{built_in}");
        assert_eq!(has("sasl_gssapi"), cfg!(feature = "sasl"), "{built_in}");
        assert_eq!(has("oidc"), cfg!(feature = "sasl"), "{built_in}");
    }
}
