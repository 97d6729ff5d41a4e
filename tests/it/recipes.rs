//! Tests the bridges of `deploy/recipes`, between simulated products and a real engine, gateway and
//! Kafka.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::Uri;
use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use crate::broker::Broker;
use crate::gateway::Door;
use crate::kafka::engine::Engine;
use crate::kafka::kcat::read_all;

/// How long a step may take: generous, since it bounds a hang.
const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: &str = "a secret of the product";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A product that accepts every request, and the requests that it received.
struct Product {
    address: SocketAddr,
    calls: Receiver<(String, Value)>,
}

impl Product {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, calls) = channel();
        let take = move |uri: Uri, body: String| async move {
            let body = serde_json::from_str(&body).expect("JSON");
            let _ = sender.send((uri.path().to_owned(), body));
            "{\"ok\":true}"
        };
        let router = Router::new().fallback(take);
        std::thread::spawn(move || runtime.block_on(axum::serve(listener, router).into_future()));
        Self { address, calls }
    }

    fn next(&self) -> (String, Value) {
        self.calls.recv_timeout(PATIENCE).expect("the product is told more")
    }
}

/// A running bridge; it ends with the test.
struct Bridge {
    process: Child,
    address: String,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Bridge {
    fn start(recipe: &str, address: &str, door: &Door, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new("python3");
        command.arg(root().join("deploy/recipes").join(recipe)).stderr(Stdio::piped());
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command.env("BRIDGE_ADDRESS", address);
        command.env("TURNSTREAM_URL", format!("http://127.0.0.1:{}", door.port));
        command.env("TURNSTREAM_TOKEN", "any").env("TURNSTREAM_AGENT_TOKEN", "any");
        command.env("TURNSTREAM_WEBHOOK_SECRET", webhook_secret());
        command.envs(settings.iter().copied());
        let mut process = command.spawn().expect("it starts");
        let mut said = BufReader::new(process.stderr.take().expect("piped")).lines();
        let first = said.next().expect("it says something").expect("UTF-8");
        assert!(first.starts_with("listening on "), "{first}");
        // Read on, so that it can write on; the lines are shown if the test fails.
        std::thread::spawn(move || said.for_each(|line| eprintln!("{line:?}")));
        Self { process, address: address.to_owned() }
    }

    /// Sends a recorded payload as the product does, with these headers, and returns the answer.
    fn told(&self, path: &str, body: &str, headers: &[(String, String)]) -> (u16, String) {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-w", "\n%{http_code}", "--data-binary", body]);
        for (name, value) in headers {
            curl.args(["-H", &format!("{name}: {value}")]);
        }
        let said = curl.arg(format!("http://{}{path}", self.address)).output().expect("curl runs");
        let said = String::from_utf8(said.stdout).expect("UTF-8");
        let (body, status) = said.rsplit_once('\n').expect("a status");
        (status.parse().expect("a number"), body.to_owned())
    }

    fn chatwoot(&self, payload: &str) -> u16 {
        let (body, at) = (payload_of("chatwoot", payload), seconds());
        let signed = format!("sha256={}", signature(&format!("{at}.{body}")));
        let headers = [("x-chatwoot-timestamp", at), ("x-chatwoot-signature", signed)];
        self.told("/chatwoot", &body, &headers.map(|(name, it)| (name.to_owned(), it))).0
    }

    fn slack(&self, payload: &str) -> (u16, String) {
        let (body, at) = (payload_of("slack", payload), seconds());
        let signed = format!("v0={}", signature(&format!("v0:{at}:{body}")));
        let headers = [("x-slack-request-timestamp", at), ("x-slack-signature", signed)];
        self.told("/slack", &body, &headers.map(|(name, it)| (name.to_owned(), it)))
    }
}

fn payload_of(product: &str, name: &str) -> String {
    let folder: PathBuf = root().join("tests/fixtures/recipes").join(product);
    std::fs::read_to_string(folder.join(name).with_extension("json")).expect("a payload")
}

fn seconds() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_secs().to_string()
}

fn signature(message: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key");
    mac.update(message.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn webhook_secret() -> String {
    base64::engine::general_purpose::STANDARD.encode([7; 32])
}

/// Returns an address that was free a moment ago: gateway and bridge must know each other's before
/// they start.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

#[test]
fn the_recipes_pass_their_own_tests() {
    let mut tests = Command::new("python3");
    tests.args(["-m", "unittest", "discover", "deploy/recipes"]).current_dir(root());
    let Ok(ran) = tests.env("PYTHONDONTWRITEBYTECODE", "1").output() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "python3 is missing; deploy/packages installs it"
        );
        return eprintln!("SKIPPED: the_recipes_pass_their_own_tests: there is no python3");
    };
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success() && said.contains("OK"), "{said}");
}

#[test]
fn chatwoot_and_slack_are_answered_on_a_real_broker() {
    let test = "chatwoot_and_slack_are_answered_on_a_real_broker";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", 2);
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let written = |name: &str, bridge: &str| {
        let path = folder.join(name);
        let text = format!(
            "[log.kafka]\nbootstrap_servers = \"{}\"\ngroup_id = \"{name}\"\n[gateway]\n\
             address = \"127.0.0.1:0\"\n[gateway.webhook]\nurl = \"http://{bridge}/gateway\"\n\
             secret = \"{}\"\n",
            broker.bootstrap(),
            webhook_secret(),
        );
        std::fs::write(&path, text).expect("written");
        path
    };
    let [of_chatwoot, of_slack] = [free_address(), free_address()];
    let configs = [written("chatwoot.toml", &of_chatwoot), written("slack.toml", &of_slack)];
    let engine = Engine::start(&configs[0], &folder.join("run.log"));
    let [first, second] =
        configs.each_ref().map(|config| Door::open(config, &config.with_extension("log")));
    chatwoot(&first, &of_chatwoot);
    slack(&second, &of_slack);
    engine.stop();
    let turns = read_all(&broker, "turns").len();
    assert_eq!(turns, 4 + 2, "what is sent again is there once, and what is no turn is not");
}

fn chatwoot(door: &Door, address: &str) {
    let product = Product::start();
    let url = format!("http://{}", product.address);
    let settings =
        [("CHATWOOT_URL", &*url), ("CHATWOOT_BOT_TOKEN", "bot"), ("CHATWOOT_BOT_SECRET", SECRET)];
    let bridge = Bridge::start("chatwoot.py", address, door, &settings);
    assert_eq!(bridge.chatwoot("customer_message"), 200);
    let (path, message) = product.next();
    assert_eq!(path, "/api/v1/accounts/3/conversations/451/messages");
    assert_eq!(message["message_type"], "outgoing");
    assert!(message["content"].as_str().is_some_and(|text| !text.is_empty()), "{message}");
    assert_eq!(bridge.chatwoot("customer_message"), 200, "sent again");
    for (payload, said) in [("bot_message", 200), ("agent_message", 200)] {
        assert_eq!(bridge.chatwoot(payload), said, "{payload}");
    }
    // The agent holds the conversation until it is resolved; then the engine answers again.
    assert_eq!(bridge.chatwoot("conversation_resolved"), 200);
    let later = door.say("chatwoot-3-451", "later", "What is a ferry?").1;
    assert_eq!(later["outcome"], "response", "{later}");
    let (_, message) = product.next();
    assert_eq!(message["content"], later["text"], "and nothing was posted in between");
}

fn slack(door: &Door, address: &str) {
    let product = Product::start();
    let url = format!("http://{}", product.address);
    let settings = [
        ("SLACK_API_URL", &*url),
        ("SLACK_BOT_TOKEN", "xoxb"),
        ("SLACK_SIGNING_SECRET", SECRET),
        ("SLACK_AGENTS_CHANNEL", "C0DESK"),
    ];
    let bridge = Bridge::start("slack.py", address, door, &settings);
    let (status, challenge) = bridge.slack("url_verification");
    assert_eq!((status, &*challenge), (200, "b2f0c6d1-a-challenge-of-ours"));
    assert_eq!(bridge.slack("channel_message").0, 200);
    let (path, message) = product.next();
    assert_eq!((&*path, &message["channel"]), ("/chat.postMessage", &"C0HELP001".into()));
    assert_eq!(message["thread_ts"], "1790000100.000100", "in the thread of the question");
    let asked =
        door.say("slack-T0FERRY01-C0HELP001-1790000100.000100", "h", "Can I talk to someone?").1;
    assert_eq!(asked["action"], "hand_off", "{asked}");
    let told = [product.next().1, product.next().1].map(|it| it["channel"].to_string());
    assert!(told.contains(&"\"C0DESK\"".to_owned()), "the agents hear who waits: {told:?}");
}
