//! A copier by rskafka: `rskafka-copier BOOTSTRAP SOURCE TARGET` makes the two topics where they are missing, and
//! writes each record of a partition of SOURCE to the same one of TARGET in upper case. rskafka knows no groups: it
//! begins after as many records as TARGET has, so that each is there once unless an answer was lost.
use std::sync::Arc;
use std::time::Duration;

use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PARTITIONS: i32 = 2;

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let client = Arc::new(ClientBuilder::new(vec![arguments[1].clone()]).build().await?);
    let (source, target) = (arguments[2].clone(), arguments[3].clone());
    let present = client.list_topics().await?;
    for topic in [&source, &target] {
        if !present.iter().any(|each| &each.name == topic) {
            client.controller_client()?.create_topic(topic, PARTITIONS, 1, 5_000).await?;
        }
    }
    let mut copies = tokio::task::JoinSet::new();
    for partition in 0..PARTITIONS {
        copies.spawn(copy(client.clone(), source.clone(), target.clone(), partition));
    }
    while let Some(ended) = copies.join_next().await {
        ended??;
    }
    Ok(())
}

async fn open(client: &Client, topic: &str, partition: i32) -> Outcome<PartitionClient> {
    Ok(client.partition_client(topic, partition, UnknownTopicHandling::Retry).await?)
}

async fn copy(client: Arc<Client>, source: String, target: String, partition: i32) -> Outcome<()> {
    let read = open(&client, &source, partition).await?;
    let written = open(&client, &target, partition).await?;
    let mut offset = written.get_offset(OffsetAt::Latest).await?;
    loop {
        let (found, _) = read.fetch_records(offset, 1..1_000_000, 100).await?;
        let copied: Vec<Record> = found
            .into_iter()
            .map(|each| {
                offset = each.offset + 1;
                let value = each.record.value.map(|value| value.to_ascii_uppercase());
                Record { value, ..each.record }
            })
            .collect();
        if copied.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        written.produce(copied, Compression::NoCompression).await?;
    }
}
