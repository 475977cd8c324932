//! Transactions over several calls.

use ropewalk_auth::Right;
use ropewalk_grpc::proto::ropewalk::v1 as proto;
use ropewalk_grpc::proto::ropewalk::v1::operation_result::Kind as Done;
use ropewalk_grpc::proto::ropewalk::v1::transaction_error::Place;
use ropewalk_grpc::proto::ropewalk::v1::transactions_client::TransactionsClient;
use tonic::{Code, Status};

use super::{appended, by, commit, counts, create_user, kinds, number, order, refusal, rows, run, shop, sql};
use crate::{Server, within};

async fn begin(server: &Server) -> String {
    let begun = within(server.transactions().begin(proto::BeginRequest::default())).await.unwrap();
    let begun = begun.into_inner();
    assert_eq!((begun.snapshot, begun.idle_millis), (server.service.database().seq().0, 30_000));
    begun.transaction
}

async fn execute(
    server: &Server,
    transaction: &str,
    operations: Vec<proto::Operation>,
) -> Result<Vec<Done>, Status> {
    let transaction = transaction.to_owned();
    let request = proto::ExecuteRequest { transaction, operations, ..proto::ExecuteRequest::default() };
    let executed = within(server.transactions().execute(request)).await?;
    Ok(kinds(executed.into_inner().results))
}

async fn end(server: &Server, transaction: &str) -> Result<proto::CommitOpenResponse, Status> {
    let request = proto::CommitOpenRequest { transaction: transaction.to_owned() };
    within(server.transactions().commit_open(request)).await.map(|response| response.into_inner())
}

#[tokio::test]
async fn open_transaction_commits_once_and_sees_its_writes() {
    let server = shop().await;
    let open = begin(&server).await;
    let results = execute(&server, &open, order("o1")).await.unwrap();
    let unknown = proto::AppendedEvents { first: None, last: None, ..appended("shop", 0, 0) };
    assert_eq!(results[0], Done::Appended(unknown));
    let own = execute(&server, &open, vec![sql("SELECT n FROM stock")]).await.unwrap();
    assert_eq!(rows(&own[0]), [[number(2)]]);
    assert_eq!(counts(&server).await, [0, 0, 0, 3], "before the commit");
    let committed = end(&server, &open).await.unwrap();
    assert_eq!(committed.appended, [appended("shop", 1, 1)]);
    assert_eq!(committed.seq, server.service.database().seq().0);
    assert_eq!(counts(&server).await, [1, 1, 1, 2]);
    assert_eq!(end(&server, &open).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn open_transaction_ends_by_rollback_error_and_conflict() {
    let server = shop().await;
    let update = || vec![sql("UPDATE stock SET n = n + 1")];
    let open = begin(&server).await;
    execute(&server, &open, update()).await.unwrap();
    let rollback = proto::RollbackRequest { transaction: open.clone() };
    within(server.transactions().rollback(rollback)).await.unwrap();
    assert_eq!(execute(&server, &open, update()).await.unwrap_err().code(), Code::NotFound);

    let open = begin(&server).await;
    let wrong = [update(), vec![sql("UPDATE nothing SET n = 1")]].concat();
    let status = execute(&server, &open, wrong).await.unwrap_err();
    assert_eq!(refusal(&status).2.place, Some(Place::Operation(1)));
    assert_eq!(execute(&server, &open, update()).await.unwrap_err().code(), Code::NotFound);

    let open = begin(&server).await;
    execute(&server, &open, update()).await.unwrap();
    run(&server, commit(update())).await.unwrap();
    let (code, name, _) = refusal(&end(&server, &open).await.unwrap_err());
    assert_eq!((code, name.as_str()), (Code::Aborted, "key_conflict"));
    assert_eq!(counts(&server).await, [0, 0, 0, 4]);
    assert_eq!(end(&server, "xyz").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn open_transaction_at_a_commit_only_reads() {
    let server = shop().await;
    let at = server.service.database().seq();
    run(&server, commit(order("o1"))).await.unwrap();
    let request = proto::BeginRequest { at: Some(at.0), ..proto::BeginRequest::default() };
    let begun = within(server.transactions().begin(request)).await.unwrap().into_inner();
    assert_eq!(begun.snapshot, at.0);
    let read = execute(&server, &begun.transaction, vec![sql("SELECT n FROM stock")]).await.unwrap();
    assert_eq!(rows(&read[0]), [[number(3)]]);
    let status = execute(&server, &begun.transaction, order("o2")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(counts(&server).await, [1, 1, 1, 2]);
}

#[tokio::test]
async fn open_transactions_are_private_and_limited_over_all_ports() {
    let server = shop().await;
    create_user(&server, "ann", "*", Right::Admin).await;
    create_user(&server, "bob", "*", Right::Admin).await;
    let other_port = TransactionsClient::new(server.port("shop").await);
    let begin = async |name: &str, is_on_other_port: bool| {
        let mut client = if is_on_other_port { other_port.clone() } else { server.transactions() };
        let begun = within(client.begin(by(name, proto::BeginRequest::default()))).await;
        begun.map(|begun| begun.into_inner().transaction)
    };
    let open = begin("ann", false).await.unwrap();
    let rollback = |name: &str| by(name, proto::RollbackRequest { transaction: open.clone() });
    let status = within(server.transactions().rollback(rollback("bob"))).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    // The token is valid on every port.
    within(other_port.clone().rollback(rollback("ann"))).await.unwrap();
    let most = server.service.limits().transactions.open_per_caller;
    for number in 0..most {
        begin("ann", number % 2 == 0).await.unwrap();
    }
    assert_eq!(server.transactions.count(), most);
    for is_on_other_port in [false, true] {
        let status = begin("ann", is_on_other_port).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
    }
    begin("bob", true).await.unwrap();
}
