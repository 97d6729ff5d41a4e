use std::sync::mpsc::Receiver;

use axum::Router;
use axum::routing::get;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self as client};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;
use crate::config::{GatewayConfig, TenantConfig};
use crate::conversations::ConversationKey;
use crate::turns::testing;
use crate::writing::ToWrite;

type Client = WebSocketStream<tokio::net::TcpStream>;

/// A gateway that serves sockets, and the receiver of what is written through it.
async fn serve() -> (Arc<Gateway>, Receiver<ToWrite>, std::net::SocketAddr) {
    let tokens = TenantConfig { token: "front".to_owned(), ..TenantConfig::default() };
    let tenants = [("shop".to_owned(), tokens)].into();
    let config = GatewayConfig { tenants, ..GatewayConfig::default() };
    let (gateway, written) = testing::gateway(&config);
    let router = Router::new().route("/{conversation}", get(super::get));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router.with_state(Arc::clone(&gateway));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (gateway, written, address)
}

async fn connect(
    address: std::net::SocketAddr,
    path: &str,
    token: &str,
) -> Result<Client, client::Error> {
    let mut request = format!("ws://{address}/{path}").into_client_request().unwrap();
    let protocols = format!("{PROTOCOL}, bearer.{token}").parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocols);
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    client_async(request, stream).await.map(|(client, _)| client)
}

async fn hear(client: &mut Client) -> Value {
    loop {
        if let client::Message::Text(text) = client.next().await.unwrap().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

fn event(number: usize, kind: EventKind, turn_id: &str) -> ConversationEvent {
    ConversationEvent {
        id: number.to_string(),
        kind,
        turn_id: Some(turn_id.to_owned()),
        json: format!("{{\"number\":{number}}}").into(),
    }
}

fn c() -> ConversationKey {
    ("shop".to_owned(), "c".to_owned())
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

#[test]
fn turns_go_in_and_what_became_of_them_comes_out() {
    run(async {
        let (gateway, written, address) = serve().await;
        assert!(connect(address, "c", "nobody").await.is_err(), "without a token of a tenant");
        let mut socket = connect(address, "c", "front").await.unwrap();
        socket.send(client::Message::text("{\"text\":\"hi\",\"turn_id\":\"t\"}")).await.unwrap();
        let record = tokio::task::spawn_blocking(move || (written.recv().unwrap(), written));
        let (record, written) = record.await.unwrap();
        assert!(record.value().contains("\"conversation_id\":\"c\""), "{}", record.value());
        record.acknowledge(true);
        let taken = json!({ "type": "taken", "data": { "turn_id": "t" } });
        assert_eq!(hear(&mut socket).await, taken);
        gateway.conversations.pass_on(&c(), event(1, EventKind::Partial, "t"));
        gateway.conversations.note(c(), event(2, EventKind::Response, "t"));
        let outcome = json!({ "id": "2", "type": "response", "data": { "number": 2 } });
        assert_eq!(hear(&mut socket).await, outcome, "partials were not asked for");
        // Sent again, the turn gets its outcome at once, and is not written.
        socket.send(client::Message::text("{\"text\":\"hi\",\"turn_id\":\"t\"}")).await.unwrap();
        assert_eq!(hear(&mut socket).await, outcome);
        for (said, status) in [
            ("hello", 400),
            ("{\"text\":\"Marta here\",\"turn_id\":\"a\",\"speaker\":\"system\"}", 403),
        ] {
            socket.send(client::Message::text(said)).await.unwrap();
            let refused = hear(&mut socket).await;
            assert_eq!(
                (&refused["type"], &refused["data"]["status"]),
                (&"refused".into(), &status.into())
            );
        }
        assert!(written.try_recv().is_err());
        socket.send(client::Message::text("{\"text\":\"more\",\"turn_id\":\"u\"}")).await.unwrap();
        let record = tokio::task::spawn_blocking(move || written.recv().unwrap());
        record.await.unwrap().acknowledge(false);
        let refused = hear(&mut socket).await;
        assert_eq!(
            (&refused["data"]["turn_id"], &refused["data"]["status"]),
            (&"u".into(), &503.into())
        );
    });
}

#[test]
fn a_reader_may_come_again_and_one_that_is_too_slow_is_cut_off() {
    run(async {
        let (gateway, _written, address) = serve().await;
        (1..=3).for_each(|at| gateway.conversations.note(c(), event(at, EventKind::Response, "t")));
        let mut socket = connect(address, "c?after=1&partials=true", "front").await.unwrap();
        assert_eq!(hear(&mut socket).await["id"], "2");
        assert_eq!(hear(&mut socket).await["id"], "3");
        gateway.conversations.pass_on(&c(), event(4, EventKind::Partial, "u"));
        assert_eq!(hear(&mut socket).await["type"], "partial");
        (0..300)
            .for_each(|at| gateway.conversations.note(c(), event(at, EventKind::Response, "t")));
        let closed = loop {
            match socket.next().await.unwrap().unwrap() {
                client::Message::Close(frame) => break frame.unwrap().code,
                client::Message::Text(_) | client::Message::Ping(_) => {}
                other => panic!("{other}"),
            }
        };
        assert_eq!(closed, CloseCode::Again);
    });
}
