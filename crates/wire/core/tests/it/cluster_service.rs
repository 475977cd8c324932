//! The service on a leader and on a follower.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk::{AppendOptions, Event, Seq};
use ropewalk_auth::Caller;
use ropewalk_wire::{Cluster as _, Code};

use crate::cluster::Node;

#[tokio::test(flavor = "multi_thread")]
async fn write_on_a_follower_is_refused_with_the_leader() {
    let (leader, follower) = Node::pair();
    follower.follow();
    let caller = Caller::everybody();
    let events = [Event::new("A")];
    let refused = follower.service.append(&caller, "shop", &events, AppendOptions::default()).await;
    let error = refused.unwrap_err();
    assert_eq!(error.code, Code::NotLeader);
    assert!(error.leader.unwrap().starts_with("http://n1:4780"));
    leader.service.append(&caller, "shop", &events, AppendOptions::default()).await.unwrap();
    follower.follow();
    assert_eq!(follower.service.count(&caller, "shop", &ropewalk::Query::all()).await.unwrap(), 1);
    assert_eq!(leader.db().seq(), follower.db().seq());
}

#[tokio::test(flavor = "multi_thread")]
async fn default_store_of_a_follower_comes_from_its_leader() {
    let (_leader, follower) = Node::pair();
    assert!(follower.db().event_stores().is_empty());
    follower.follow();
    assert_eq!(follower.db().event_stores(), ["default"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_waits_for_the_commit_that_it_names() {
    let (leader, follower) = Node::pair();
    let follower = Arc::new(follower);
    leader.db().events("shop").unwrap().append(&[Event::new("A")], None).unwrap();
    let seq = leader.db().seq();
    assert!(follower.db().seq() < seq);
    let later = follower.follow_later();
    follower.service.wait_for_commit(seq).await.unwrap();
    assert_eq!(follower.db().seq(), seq);
    later.join().unwrap();
    follower.service.stop().begin();
    let error = follower.service.wait_for_commit(Seq(seq.0 + 1)).await.unwrap_err();
    assert_eq!(error.code, Code::Stopping);
}

#[tokio::test(flavor = "multi_thread")]
async fn barrier_is_passed_by_the_leader_alone() {
    let (leader, follower) = Node::pair();
    follower.follow();
    leader.service.read_barrier().await.unwrap();
    assert_eq!(leader.state.barriers.load(Ordering::Relaxed), 1);
    assert_eq!(follower.service.read_barrier().await.unwrap_err().code, Code::NotLeader);
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_that_has_stepped_down_refuses_writes_as_a_follower_does() {
    let (leader, follower) = Node::pair();
    follower.follow();
    assert_eq!(follower.state.step_down().unwrap_err().code, Code::NotLeader);
    assert_eq!(leader.state.step_down().unwrap().term, 1);
    let (caller, events) = (Caller::everybody(), [Event::new("A")]);
    let refused = leader.service.append(&caller, "shop", &events, AppendOptions::default()).await;
    assert_eq!(refused.unwrap_err().code, Code::NotLeader);
    follower.lead();
    follower.service.append(&caller, "shop", &events, AppendOptions::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_role_of_the_node() {
    let (leader, follower) = Node::pair();
    follower.follow();
    let text = |node: &Node| node.service.metrics().render(node.db());
    assert!(text(&leader).contains("ropewalk_cluster_role{role=\"leader\"} 1\n"));
    assert!(text(&follower).contains("ropewalk_cluster_role{role=\"follower\"} 1\n"));
    assert!(text(&follower).contains("ropewalk_cluster_term 1\n"));
    assert!(text(&follower).contains("ropewalk_cluster_log_warnings 1\n"));
    for row in ["number 5", "age_seconds 1.5", "failures 1", "up 1"] {
        let row = format!("ropewalk_cluster_checkpoint_{row}\n");
        assert!(text(&leader).contains(&row), "{row}");
    }
    for row in [
        "hash_equal_seq 1024",
        "hash_differing 1",
        "hashed_commits 4",
        "hashed_bytes 400",
        "check_age_seconds 2.5",
    ] {
        let row = format!("ropewalk_cluster_{row}\n");
        assert!(text(&leader).contains(&row), "{row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_the_leader_close_its_followers() {
    let (leader, follower) = Node::pair();
    follower.follow();
    assert!(follower.service.access().is_open());
    let roles = ropewalk_auth::Roles::new();
    let everybody = Caller::everybody();
    leader.service.access().create_user(&everybody, "ann", "correct horse", roles).await.unwrap();
    follower.follow();
    assert!(!follower.service.access().is_open());
    let created =
        follower.service.access().create_user(&everybody, "bob", "correct horse", Default::default());
    assert!(created.await.is_err(), "a follower creates no user");
}
