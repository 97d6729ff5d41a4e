//! Which keys hold secrets, and how to show values without revealing one.

/// Replaces a secret in everything that is shown.
pub const MASK: &str = "********";

/// Words that make a key secret. Keys are split into words at dots, dashes and underscores, so that
/// `sasl.password` and `api_token` are secret and `max_context_tokens` is not.
const SECRET_WORDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "credentials",
    "pem",
    "jaas",
];

/// Pairs of words that make a key secret only together.
const SECRET_PAIRS: [(&str, &str); 3] =
    [("api", "key"), ("private", "key"), ("oauthbearer", "config")];

/// Last words that name a place or a number, which is not secret: `ssl.key.location`,
/// `token.endpoint.url`, `token_limit`.
const PLAIN_ENDINGS: [&str; 8] = ["location", "file", "path", "url", "limit", "ms", "bytes", "env"];

/// Whether the value of a key must never be shown.
pub fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let words: Vec<&str> = key.split(['.', '-', '_']).collect();
    let plain = words.last().is_some_and(|last| PLAIN_ENDINGS.contains(last));
    let word = words.iter().any(|word| SECRET_WORDS.contains(word));
    let pair = words
        .windows(2)
        .any(|pair| SECRET_PAIRS.iter().any(|(first, second)| pair == [*first, *second]));
    !plain && (word || pair)
}

/// Returns the text with the name and password masked in every address such as
/// `https://name:password@host`.
pub fn without_userinfo(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(scheme) = rest.find("://") {
        let (before, after) = rest.split_at(scheme + 3);
        shown.push_str(before);
        let authority = after.find(['/', '?', '#', ' ', ',']).unwrap_or(after.len());
        match after[..authority].rfind('@') {
            Some(at) => {
                shown.push_str(MASK);
                rest = &after[at..];
            }
            None => rest = after,
        }
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_keys() {
        for key in [
            "sasl.password",
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.key.pem",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.config",
            "sasl.jaas.config",
            "api_key",
            "API-Token",
        ] {
            assert!(is_secret(key), "{key}");
        }
        for key in [
            "sasl.username",
            "ssl.key.location",
            "max_context_tokens",
            "bootstrap.servers",
            "sasl.oauthbearer.token.endpoint.url",
            "secretary",
            "api_key_env",
            "key",
        ] {
            assert!(!is_secret(key), "{key}");
        }
    }

    #[test]
    fn addresses_lose_their_passwords() {
        for (text, shown) in [
            ("plain@text", "plain@text"),
            ("https://host/a@b", "https://host/a@b"),
            ("https://me:pw@host/x", "https://********@host/x"),
            ("a://u:p@ss@h,b://v:q@i", "a://********@h,b://********@i"),
        ] {
            assert_eq!(without_userinfo(text), shown);
        }
    }
}
