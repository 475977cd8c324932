//! Many idle subscriptions use little memory, and each still receives its event.

use ropewalk_grpc::proto::umadb::v1 as proto;

use super::{calls, number, resident_mib};
use crate::Place;
use crate::serving::Server;

const STREAMS_PER_CONNECTION: u64 = 100;
/// Memory for connections and the allocator, and per subscription: 10,000 use less than 200 MiB.
const BASE_MIB: u64 = 40;
const SUBSCRIPTION_KIB: u64 = 16;

fn event(tag: String) -> proto::AppendRequest {
    let event = proto::Event { event_type: "Woken".into(), tags: vec![tag], ..Default::default() };
    proto::AppendRequest { events: vec![event], ..Default::default() }
}

#[test]
fn idle_subscriptions_cost_little_and_miss_nothing() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let subscriptions = number("ROPEWALK_IDLE", 1000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut appender = calls::client(server.address("grpc")).await;
        appender.append(event("other".into())).await.unwrap();
        let before = resident_mib(&place);
        let (mut client, mut streams) = (calls::client(server.address("grpc")).await, Vec::new());
        for i in 0..subscriptions {
            if i % STREAMS_PER_CONNECTION == 0 {
                client = calls::client(server.address("grpc")).await;
            }
            let item = proto::QueryItem { types: Vec::new(), tags: vec![format!("idle:{i}")] };
            let query = Some(proto::Query { items: vec![item] });
            let request = proto::SubscribeRequest { query, after: Some(1), batch_size: None };
            streams.push(client.subscribe(request).await.unwrap().into_inner());
        }
        for _ in 0..100 {
            appender.append(event("other".into())).await.unwrap();
        }
        let grown = resident_mib(&place).saturating_sub(before);
        let most = BASE_MIB + subscriptions * SUBSCRIPTION_KIB / 1024;
        assert!(grown < most, "{subscriptions} subscriptions take {grown} MiB");
        for i in (0..subscriptions).step_by(37) {
            let position = appender.append(event(format!("idle:{i}"))).await.unwrap().into_inner().position;
            let woken = streams[i as usize].message().await.unwrap().unwrap();
            let positions: Vec<_> = woken.events.iter().map(|event| event.position).collect();
            assert_eq!(positions, [position]);
        }
    });
    drop(runtime);
    super::ends_clean(&place, server);
}
