"""Examples of each command, which its help ends with."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "serve": (
        "lakelog serve --data /data/lakelog --maintain",
        "lakelog serve --port 0 --kafka-port 9092 --set linger_ms=0",
        "lakelog serve --data s3://events/lakelog --config lakelog.toml --workers 2",
    ),
    "produce": (
        "echo hello | lakelog produce greetings --create",
        "lakelog produce flights flights.csv.gz --key-field tailnum --timestamp-field time_hour",
        "lakelog produce orders --key-separator : --header source=shell < orders.txt",
        "lakelog produce orders orders.ndjson --value-schema orders-value",
    ),
    "consume": (
        "lakelog consume flights -o -10",
        "lakelog consume flights --follow --format '%T %k %s\\n'",
        "lakelog consume flights --json --value-format json --from 2026-01-31T10:00:00Z",
        "lakelog consume flights orders --group readers --follow",
        "lakelog consume orders --value-format avro",
    ),
    "sql": (
        "lakelog sql",
        "lakelog sql 'SHOW TABLES'",
        "lakelog sql 'SELECT carrier, count(*) FROM flights_json GROUP BY carrier'",
        "lakelog sql --file report.sql --format csv > report.csv",
    ),
    "fsck": ("lakelog fsck --data /data/lakelog", "lakelog fsck --deep --topic flights"),
    "maintain": (
        "lakelog maintain --dry-run --topic flights",
        "lakelog maintain --once",
        "lakelog maintain --every 5m --data s3://events/lakelog",
    ),
    "bench": ("lakelog bench --seconds 10 --size 1000 --format json",),
    "doctor": (
        "lakelog doctor --url https://log.example.com",
        "lakelog doctor --data /data/lakelog --bundle lakelog.zip --log gateway.log --fsck",
    ),
    "demo": ("lakelog demo --data /tmp/lakelog-demo",),
    "topic create": (
        "lakelog topic create orders --partitions 6",
        "lakelog topic create prices --config cleanup.policy=compact --config segment.bytes=64MiB",
    ),
    "topic list": ("lakelog topic list", "lakelog topic list --deleted"),
    "topic describe": ("lakelog topic describe orders", "lakelog topic describe orders prices --all"),
    "topic alter": (
        "lakelog topic alter orders --config retention.ms=7d --config retention.bytes=10GiB",
        "lakelog topic alter orders --unset retention.bytes --partitions 12",
    ),
    "topic history": ("lakelog topic history orders",),
    "topic revert": (
        "lakelog topic revert orders --to 1024 --dry-run",
        "lakelog topic revert orders --to-time 2026-01-31T10:00:00Z",
    ),
    "topic infer": (
        "lakelog topic infer orders --records 50000",
        "lakelog topic infer orders --from-registry --yes",
    ),
    "topic check-columns": (
        "lakelog topic check-columns orders",
        "lakelog topic check-columns orders --subject orders-value --version 3",
    ),
    "topic delete": ("lakelog topic delete orders", "lakelog topic delete --yes orders prices"),
    "topic undelete": ("lakelog topic undelete orders", "lakelog topic undelete orders --as old-orders"),
    "topic restore": (
        "lakelog topic restore orders --to-time 2026-11-28T12:00:00Z --dry-run",
        "lakelog topic restore orders --partition 0 --to-version 17",
    ),
    "topic purge": ("lakelog topic purge orders",),
    "group list": ("lakelog group list",),
    "group describe": ("lakelog group describe readers",),
    "group lag": ("lakelog group lag readers",),
    "group delete": ("lakelog group delete readers",),
    "group reset-offsets": (
        "lakelog group reset-offsets readers --to earliest --dry-run",
        "lakelog group reset-offsets readers --to 2026-01-31T10:00:00Z",
    ),
    "group undo": (
        "lakelog group undo readers --dry-run",
        "lakelog group undo readers",
    ),
    "broker list": ("lakelog broker list",),
    "context set": (
        "lakelog context set prod --url https://log.example.com --api-key-file /run/secrets/lakelog",
        "lakelog context set here --url http://127.0.0.1:8082 --data /data/lakelog",
    ),
    "context use": ("lakelog context use prod",),
    "context leave": ("lakelog context leave",),
    "context list": ("lakelog context list",),
    "context remove": ("lakelog context remove prod",),
    "mirror create": (
        "lakelog mirror create shop --source kafka1:9092,kafka2:9092 --topic orders --topic '^shop\\..*'",
        "lakelog mirror create shop --source kafka:9093 --config kafka.conf --topic orders --dry-run",
    ),
    "mirror list": ("lakelog mirror list",),
    "mirror describe": ("lakelog mirror describe shop",),
    "mirror run": ("lakelog mirror run shop --data /data/lakelog", "lakelog mirror run"),
    "mirror pause": ("lakelog mirror pause shop",),
    "mirror resume": ("lakelog mirror resume shop",),
    "mirror verify": (
        "lakelog mirror verify shop",
        "lakelog mirror verify shop --topic orders --sample 10",
        "lakelog mirror verify shop --topic orders --sql lakelog",
    ),
    "mirror groups": (
        "lakelog mirror groups shop",
        "lakelog mirror groups shop --group billing --wait 30",
    ),
    "mirror promote": (
        "lakelog mirror promote shop --topic orders",
        "lakelog mirror promote shop --now",
    ),
    "mirror delete": ("lakelog mirror delete shop",),
    "mirror acls": ("lakelog mirror acls shop --dry-run", "lakelog mirror acls shop"),
    "replicate": (
        "lakelog replicate /mnt/standby/lakelog --data /data/lakelog",
        "lakelog replicate s3://standby/lakelog --store-option region=eu-central-1 --once",
    ),
    "root promote": ("lakelog root promote --data /mnt/standby/lakelog",),
    "root failback": (
        "lakelog root failback /data/lakelog --data /mnt/standby/lakelog --dry-run",
        "lakelog root failback /data/lakelog --data /mnt/standby/lakelog --discard",
    ),
    "root create": (
        "lakelog root create --data /srv/lakelog",
        "lakelog root create --data /srv/lakelog --once /var/lib/lakelog/cluster-id",
    ),
    "root copy": (
        "lakelog root copy /data/lakelog s3://backup/lakelog --store-option region=eu-central-1",
        "lakelog root copy s3://backup/lakelog /data/restored --keep-id --with-credentials",
        "lakelog root copy /data/lakelog /data/before --as-of 30m",
    ),
    "root history": ("lakelog root history --data /data/lakelog",),
    "root adopt": ("lakelog root adopt --data /data/restored",),
    "root refold": ("lakelog root refold orders --data /data/lakelog",),
    "catalog sync": (
        "lakelog catalog sync unity --url http://127.0.0.1:8080 --catalog main --dry-run",
        "lakelog catalog sync hive --url thrift://127.0.0.1:9083 --root s3a://events/lakelog",
        "lakelog catalog sync glue --schema events --every 60s",
    ),
    "store check": ("lakelog store check s3://events/lakelog", "lakelog store check /mnt/nfs/lakelog"),
    "security init": ("lakelog security init --data /data/lakelog",),
    "security enable": ("lakelog security enable --data /data/lakelog",),
    "security disable": ("lakelog security disable --data /data/lakelog",),
    "security status": ("lakelog security status --data /data/lakelog",),
    "security add-super-user": ("lakelog security add-super-user User:alice",),
    "security remove-super-user": ("lakelog security remove-super-user User:alice",),
    "key create": ("lakelog key create User:shop --expires-days 90",),
    "key list": ("lakelog key list --data /data/lakelog",),
    "key revoke": ("lakelog key revoke 3f9a1c7b2e04",),
    "user create": ("lakelog user create alice --password-file password.txt",),
    "user list": ("lakelog user list --data /data/lakelog",),
    "user remove": ("lakelog user remove alice",),
    "quota set": (
        "lakelog quota set User:alice producer_byte_rate=10MiB request_rate=200",
        "lakelog quota set default request_rate=50",
    ),
    "quota list": ("lakelog quota list --data /data/lakelog",),
    "quota history": ("lakelog quota history --data /data/lakelog",),
    "quota revert": ("lakelog quota revert --to 1024 --dry-run",),
    "quota remove": ("lakelog quota remove User:alice request_rate",),
    "audit who": ("lakelog audit who orders 0 1042 --data s3://events/lakelog",),
    "acl create": (
        "lakelog acl create --allow-principal User:shop --producer --topic orders",
        "lakelog acl create --allow-principal User:bi --consumer --topic orders --group bi",
    ),
    "acl delete": ("lakelog acl delete --allow-principal User:shop --topic orders",),
    "acl list": ("lakelog acl list --topic orders", "lakelog acl list --principal User:shop"),
    "acl history": ("lakelog acl history --data /data/lakelog",),
    "acl revert": (
        "lakelog acl revert --to 1024 --dry-run",
        "lakelog acl revert --to-time 2026-01-31T10:00:00Z",
    ),
    "acl export": ("lakelog acl export --format aws-iam --data s3://events/lakelog",),
}


def epilog_of(command: str) -> str:
    """The examples of a command (`topic create`), a line each; the mark is click's for lines that stay."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in EXAMPLES[command])])
