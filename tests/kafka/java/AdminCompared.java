import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.serialization.*;

/**
 * The same calls of Java's Admin client to any broker, right ones and wrong ones. Each line is what one of them
 * found; an error is "!", its class, and its message between a tab and a unit separator.
 */
public class AdminCompared {
    static Admin admin;
    static Admin another;
    static String bootstrap;
    static String guarded;

    interface Call { Object run() throws Exception; }

    static void show(String name, Call call) {
        Object found;
        try {
            found = call.run();
        } catch (ExecutionException e) {
            found = error(e.getCause());
        } catch (Exception e) {
            found = error(e);
        }
        System.out.println(name + ": " + found);
    }

    static String error(Throwable e) {
        if (e instanceof ExecutionException && e.getCause() != null) return error(e.getCause());
        return "!" + e.getClass().getSimpleName() + "\t" + String.valueOf(e.getMessage()).replace('\n', ' ') + "\u001f";
    }

    static <K, V> String each(Map<K, KafkaFuture<V>> futures) {
        TreeMap<String, String> found = new TreeMap<>();
        futures.forEach((key, future) -> {
            try {
                found.put("" + key, "" + future.get());
            } catch (Exception e) {
                found.put("" + key, error(e));
            }
        });
        return found.toString();
    }

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> p = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", "20000",
            "default.api.timeout.ms", "30000"));
        for (int i = 0; i < pairs.length; i += 2) p.put((String) pairs[i], pairs[i + 1]);
        return p;
    }

    static Admin login(String user, String password, String mechanism, boolean token) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return Admin.create(config("bootstrap.servers", guarded, "security.protocol", "SASL_PLAINTEXT",
            "sasl.mechanism", mechanism, "sasl.jaas.config", "org.apache.kafka.common.security." + module
            + " required username=\"" + user + "\" password=\"" + password + "\""
            + (token ? " tokenauth=\"true\"" : "") + ";"));
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        guarded = args[1];
        Set<String> parts = new HashSet<>(Arrays.asList(args).subList(2, args.length));
        admin = Admin.create(config());
        run(parts, "topics", AdminCompared::topics);
        run(parts, "partitions", AdminCompared::partitions);
        run(parts, "records", AdminCompared::records);
        run(parts, "configs", AdminCompared::configs);
        run(parts, "groups", AdminCompared::groups);
        run(parts, "transactions", AdminCompared::transactions);
        run(parts, "quotas", AdminCompared::quotas);
        run(parts, "users", AdminCompared::users);
        run(parts, "tokens", AdminCompared::tokens);
        run(parts, "replicas", AdminCompared::replicas);
        run(parts, "cluster", AdminCompared::cluster);
        run(parts, "deletions", AdminCompared::deletions);
        run(parts, "acls", AdminCompared::acls);
        admin.close();
    }

    interface Part { void run() throws Exception; }

    static void run(Set<String> parts, String name, Part part) {
        if (!parts.isEmpty() && !parts.contains(name)) return;
        System.out.println("== " + name);
        try {
            part.run();
        } catch (Exception e) {
            System.out.println("part " + name + " broke off: " + error(e));
            e.printStackTrace();
        }
    }

    // -- topics ------------------------------------------------------------------------------------------

    static Object create(NewTopic... topics) throws Exception {
        return create(false, topics);
    }

    static Object create(boolean only, NewTopic... topics) throws Exception {
        CreateTopicsResult made = admin.createTopics(List.of(topics), new CreateTopicsOptions().validateOnly(only));
        TreeMap<String, String> found = new TreeMap<>();
        for (String name : made.values().keySet()) {
            try {
                made.values().get(name).get();
                found.put(name, made.numPartitions(name).get() + " " + made.replicationFactor(name).get() + " "
                    + made.topicId(name).get().equals(Uuid.ZERO_UUID));
            } catch (Exception e) {
                found.put(name, error(e));
            }
        }
        return found;
    }

    static NewTopic topic(String name) {
        return new NewTopic(name, 1, (short) 1);
    }

    static NewTopic topic(String name, String... configs) {
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i < configs.length; i += 2) given.put(configs[i], configs[i + 1]);
        return topic(name).configs(given);
    }

    static void topics() throws Exception {
        show("create", () -> create(new NewTopic("orders", 2, (short) 1).configs(Map.of("retention.ms", "1000"))));
        show("create by default", () -> create(new NewTopic("plain", Optional.empty(), Optional.empty())));
        show("create minus one", () -> create(new NewTopic("minus", -1, (short) -1)));
        show("create assigned", () -> create(new NewTopic("assigned", Map.of(0, List.of(1), 1, List.of(1)))));
        show("create again", () -> create(topic("orders")));
        show("create again validated", () -> create(true, topic("orders")));
        show("create some", () -> create(topic("orders"), topic("new"), topic("no/name")));
        show("create dotted", () -> create(topic("a.b")));
        show("create colliding", () -> create(topic("a_b")));
        show("create colliding pair", () -> create(topic("c.d"), topic("c_d")));
        for (String name : List.of("", ".", "..", "a b", "a/b", "é", "x".repeat(250), "-", "_"))
            show("create named " + name, () -> create(topic(name)));
        show("create longest", () -> create(true, topic("y".repeat(249))));
        show("create offsets", () -> create(true, topic("__consumer_offsets")));
        show("create transactions", () -> create(true, topic("__transaction_state")));
        for (int count : List.of(0, -2, -1, 5))
            show("create of partitions " + count, () -> create(true, new NewTopic("z", count, (short) 1)));
        for (int count : List.of(0, -2, -1, 1, 2, 3, 32767))
            show("create of replicas " + count, () -> create(true, new NewTopic("z", 1, (short) count)));
        show("create with gap", () -> create(new NewTopic("z", Map.of(0, List.of(1), 2, List.of(1)))));
        show("create from one", () -> create(new NewTopic("z", Map.of(1, List.of(1)))));
        show("create twice the same", () -> create(new NewTopic("z", Map.of(0, List.of(1, 1)))));
        show("create without any", () -> create(new NewTopic("any", Map.of())));
        show("create misconfigured", () -> create(topic("z", "retention.ms", "never")));
        show("create below", () -> create(topic("z", "retention.ms", "-2")));
        show("create unknown config", () -> create(topic("z", "no.such", "1")));
        show("create empty config", () -> create(topic("z", "retention.ms", "")));
        show("create policy", () -> create(topic("z", "cleanup.policy", "nothing")));
        show("create no policy", () -> create(true, topic("z", "cleanup.policy", "")));
        show("create policies", () -> create(true, topic("z", "cleanup.policy", "compact, delete")));
        show("create lags", () -> create(topic("z", "min.compaction.lag.ms", "10", "max.compaction.lag.ms", "5")));
        show("create format", () -> create(true, topic("z", "message.format.version", "0.9.0")));
        show("create tiered", () -> create(topic("z", "remote.storage.enable", "true")));
        show("create local", () -> create(topic("z", "local.retention.ms", "5", "retention.ms", "4")));
        show("create compression", () -> create(topic("z", "compression.type", "lzma")));
        show("create level", () -> create(topic("z", "compression.gzip.level", "10")));
        show("create null config", () -> create(topic("z", "retention.ms", null)));
        show("create ratio", () -> create(topic("z", "min.cleanable.dirty.ratio", "1.5")));
        show("create boolean", () -> create(topic("z", "preallocate", "yes")));
        show("create isr", () -> create(topic("z", "min.insync.replicas", "0")));
        show("create throttled", () -> create(true, topic("z", "leader.replication.throttled.replicas", "nonsense")));
        show("create throttled all", () -> create(true, topic("z", "leader.replication.throttled.replicas", "*")));
        show("create validated", () -> create(true, new NewTopic("z", 3, (short) 1)));
        show("create twice in one", () -> create(topic("twice"), new NewTopic("twice", 2, (short) 1)));
        show("created config", () -> entries(admin.createTopics(List.of(topic("told", "retention.ms", "7",
            "cleanup.policy", "compact"))).config("told").get(), false));
        show("validated config", () -> entries(admin.createTopics(List.of(topic("z", "flush.ms", "7")),
            new CreateTopicsOptions().validateOnly(true)).config("z").get(), false));
        show("list", () -> new TreeSet<>(admin.listTopics().names().get()));
        show("list internal", () -> new TreeSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true))
            .names().get()));
        show("describe", () -> described(admin.describeTopics(List.of("orders", "plain"))));
        show("describe nothing", () -> described(admin.describeTopics(List.of("nowhere"))));
        show("describe some", () -> described(admin.describeTopics(List.of("nowhere", "orders"))));
        for (String name : List.of("", ".", "a b", "x".repeat(250)))
            show("describe named " + name, () -> described(admin.describeTopics(List.of(name))));
        Uuid id = admin.describeTopics(List.of("orders")).allTopicNames().get().get("orders").topicId();
        show("describe by id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
            .allTopicIds().get().get(id).name());
        for (Uuid wrong : List.of(new Uuid(5, 5), Uuid.ZERO_UUID))
            show("describe by id " + wrong, () -> each(admin.describeTopics(TopicCollection.ofTopicIds(List.of(wrong)))
                .topicIdValues()));
        show("describe operations", () -> new TreeSet<>(admin.describeTopics(List.of("orders"),
            new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .allTopicNames().get().get("orders").authorizedOperations()));
        show("describe paged", () -> described(admin.describeTopics(List.of("orders", "plain"),
            new DescribeTopicsOptions().partitionSizeLimitPerResponse(1))));
    }

    static Object described(DescribeTopicsResult result) {
        TreeMap<String, String> found = new TreeMap<>();
        result.topicNameValues().forEach((name, future) -> {
            try {
                TopicDescription it = future.get();
                found.put(name, it.isInternal() + " " + it.authorizedOperations() + " " + it.partitions().stream()
                    .map(p -> p.partition() + ":" + (p.leader() == null ? null : p.leader().id()) + ids(p.replicas())
                        + ids(p.isr())
                        + (p.elr() == null ? null : ids(p.elr())) + (p.lastKnownElr() == null ? null : ids(p.lastKnownElr())))
                    .toList());
            } catch (Exception e) {
                found.put(name, error(e));
            }
        });
        return found;
    }

    static List<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    static void deletions() throws Exception {
        create(topic("gone"), topic("gone-by-id"), topic("gone-1"));
        show("delete", () -> each(admin.deleteTopics(List.of("gone")).topicNameValues()));
        show("delete again", () -> each(admin.deleteTopics(List.of("gone")).topicNameValues()));
        show("delete some", () -> each(admin.deleteTopics(List.of("nowhere", "gone-1")).topicNameValues()));
        for (String name : List.of("", ".", "a b", "x".repeat(250)))
            show("delete named " + name, () -> each(admin.deleteTopics(List.of(name)).topicNameValues()));
        Uuid id = admin.describeTopics(List.of("gone-by-id")).allTopicNames().get().get("gone-by-id").topicId();
        show("delete by id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get());
        for (Uuid wrong : List.of(new Uuid(5, 5), Uuid.ZERO_UUID))
            show("delete by id " + wrong, () -> error(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(wrong)))
                .topicIdValues().get(wrong)));
        show("delete internal", () -> each(admin.deleteTopics(List.of("__transaction_state_")).topicNameValues()));
        show("create deleted", () -> create(topic("gone")));
    }

    static String error(KafkaFuture<?> future) {
        try {
            return "" + future.get(20, java.util.concurrent.TimeUnit.SECONDS);
        } catch (Exception e) {
            return error((Throwable) e);
        }
    }

    static void partitions() throws Exception {
        create(new NewTopic("parts", 2, (short) 1));
        for (int count : List.of(3, 3, 2, 0, -1, 4))
            show("partitions " + count, () -> each(admin.createPartitions(
                Map.of("parts", NewPartitions.increaseTo(count))).values()));
        show("partitions validated", () -> each(admin.createPartitions(Map.of("parts", NewPartitions.increaseTo(9)),
            new CreatePartitionsOptions().validateOnly(true)).values()));
        show("partitions now", () -> described(admin.describeTopics(List.of("parts"))));
        show("partitions unknown", () -> each(admin.createPartitions(
            Map.of("nowhere", NewPartitions.increaseTo(9), "parts", NewPartitions.increaseTo(5))).values()));
        show("partitions assigned", () -> each(admin.createPartitions(
            Map.of("parts", NewPartitions.increaseTo(6, List.of(List.of(1))))).values()));
        show("partitions badly assigned", () -> each(admin.createPartitions(
            Map.of("parts", NewPartitions.increaseTo(8, List.of(List.of(1))))).values()));
        show("partitions overly assigned", () -> each(admin.createPartitions(
            Map.of("parts", NewPartitions.increaseTo(7, List.of(List.of(1), List.of(1))))).values()));
        show("partitions on unknown", () -> each(admin.createPartitions(
            Map.of("parts", NewPartitions.increaseTo(7, List.of(List.of(9))))).values()));
        show("partitions on two", () -> each(admin.createPartitions(
            Map.of("parts", NewPartitions.increaseTo(7, List.of(List.of(1, 2))))).values()));
        show("partitions on twice", () -> each(admin.createPartitions(
            Map.of("parts", NewPartitions.increaseTo(7, List.of(List.of(1, 1))))).values()));
        show("partitions on none", () -> each(admin.createPartitions(
            Map.of("parts", NewPartitions.increaseTo(7, List.of(List.of())))).values()));
        show("partitions in the end", () -> described(admin.describeTopics(List.of("parts"))));
    }

    // -- records and offsets -----------------------------------------------------------------------------

    static KafkaProducer<byte[], byte[]> producer(Object... pairs) {
        Map<String, Object> given = config(pairs);
        given.put("delivery.timeout.ms", "30000");
        return new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static void produce(String topic, int count) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer("enable.idempotence", "false")) {
            for (int i = 0; i < count; i++)
                producer.send(new ProducerRecord<>(topic, 0, 1000L * (i + 1) + 5_000_000_000L, new byte[] {1}, new byte[10])).get();
        }
    }

    static Object offsets(Map<TopicPartition, OffsetSpec> specs, IsolationLevel isolation) {
        ListOffsetsResult result = admin.listOffsets(specs, new ListOffsetsOptions(isolation));
        TreeMap<String, String> found = new TreeMap<>();
        for (TopicPartition partition : specs.keySet()) {
            try {
                ListOffsetsResult.ListOffsetsResultInfo it = result.partitionResult(partition).get();
                found.put("" + partition, it.offset() + " at " + it.timestamp() + " of " + it.leaderEpoch());
            } catch (Exception e) {
                found.put("" + partition, error(e));
            }
        }
        return found;
    }

    static Map<String, OffsetSpec> specs() {
        Map<String, OffsetSpec> specs = new LinkedHashMap<>();
        specs.put("earliest", OffsetSpec.earliest());
        specs.put("latest", OffsetSpec.latest());
        specs.put("greatest", OffsetSpec.maxTimestamp());
        specs.put("local", OffsetSpec.earliestLocal());
        specs.put("tiered", OffsetSpec.latestTiered());
        for (long time : List.of(0L, 5_000_003_000L, 5_000_003_500L, 5_000_010_000L, 5_000_010_001L, -6L, -100L))
            specs.put("at " + time, OffsetSpec.forTimestamp(time));
        return specs;
    }

    static void records() throws Exception {
        create(new NewTopic("events", 2, (short) 1).configs(Map.of("retention.ms", "-1")), topic("squeezed", "cleanup.policy", "compact"),
            topic("both", "cleanup.policy", "compact,delete", "retention.ms", "-1"), topic("appended", "message.timestamp.type", "LogAppendTime"));
        produce("events", 10);
        produce("squeezed", 3);
        produce("both", 3);
        produce("appended", 3);
        TopicPartition first = new TopicPartition("events", 0), empty = new TopicPartition("events", 1);
        for (IsolationLevel isolation : IsolationLevel.values())
            specs().forEach((name, spec) -> {
                show("offsets " + name + " " + isolation, () -> offsets(Map.of(first, spec), isolation));
                show("offsets of empty " + name + " " + isolation, () -> offsets(Map.of(empty, spec), isolation));
            });
        show("offsets appended", () -> offsets(Map.of(new TopicPartition("appended", 0), OffsetSpec.forTimestamp(5)),
            IsolationLevel.READ_UNCOMMITTED).toString().replaceAll("at \\d+", "at ..."));
        show("offsets greatest appended", () -> offsets(Map.of(new TopicPartition("appended", 0), OffsetSpec.maxTimestamp()),
            IsolationLevel.READ_UNCOMMITTED).toString().replaceAll("at \\d+", "at ..."));
        show("delete records", () -> deleted(first, RecordsToDelete.beforeOffset(4)));
        show("delete fewer records", () -> deleted(first, RecordsToDelete.beforeOffset(2)));
        show("delete no records", () -> deleted(first, RecordsToDelete.beforeOffset(4)));
        show("delete too many records", () -> deleted(first, RecordsToDelete.beforeOffset(11)));
        show("delete negative records", () -> deleted(first, RecordsToDelete.beforeOffset(-2)));
        show("delete records squeezed", () -> deleted(new TopicPartition("squeezed", 0), RecordsToDelete.beforeOffset(1)));
        show("delete records both", () -> deleted(new TopicPartition("both", 0), RecordsToDelete.beforeOffset(1)));
        specs().forEach((name, spec) -> show("offsets after deletion " + name,
            () -> offsets(Map.of(first, spec), IsolationLevel.READ_UNCOMMITTED)));
        show("delete all records", () -> deleted(first, RecordsToDelete.beforeOffset(-1)));
        specs().forEach((name, spec) -> show("offsets after all " + name,
            () -> offsets(Map.of(first, spec), IsolationLevel.READ_UNCOMMITTED)));
    }

    static Object deleted(TopicPartition partition, RecordsToDelete which) {
        try {
            return admin.deleteRecords(Map.of(partition, which)).lowWatermarks().get(partition).get().lowWatermark();
        } catch (Exception e) {
            return error((Throwable) e);
        }
    }

    // -- configs -----------------------------------------------------------------------------------------

    static final Set<ConfigEntry.ConfigSource> STILL =
        Set.of(ConfigEntry.ConfigSource.DEFAULT_CONFIG, ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG);

    static String entries(Config config, boolean whole) {
        return config.entries().stream().filter(e -> whole || !STILL.contains(e.source()))
            .sorted(Comparator.comparing(ConfigEntry::name)).map(e -> "\n    " + entry(e)).collect(Collectors.joining());
    }

    static String entry(ConfigEntry e) {
        return e.name() + " = " + e.value() + " " + e.source() + (e.isReadOnly() ? " read-only" : "")
            + (e.isSensitive() ? " sensitive" : "") + " " + e.type() + " " + e.synonyms().stream()
            .map(s -> s.name() + "=" + s.value() + " " + s.source()).toList();
    }

    static Object configs(ConfigResource resource, boolean whole) {
        try {
            Config config = admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().includeSynonyms(true))
                .values().get(resource).get();
            return entries(config, whole);
        } catch (Exception e) {
            return error((Throwable) e);
        }
    }

    static ConfigResource resource(ConfigResource.Type type, String name) {
        return new ConfigResource(type, name);
    }

    static AlterConfigOp op(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    static Object alter(ConfigResource resource, boolean only, AlterConfigOp... ops) {
        return each(admin.incrementalAlterConfigs(Map.of(resource, List.of(ops)),
            new AlterConfigsOptions().validateOnly(only)).values());
    }

    @SuppressWarnings("deprecation")
    static Object replace(ConfigResource resource, boolean only, String... pairs) {
        List<ConfigEntry> entries = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2) entries.add(new ConfigEntry(pairs[i], pairs[i + 1]));
        return each(admin.alterConfigs(Map.of(resource, new Config(entries)),
            new AlterConfigsOptions().validateOnly(only)).values());
    }

    /** Makes one more change and waits for it: Kafka's broker hears of changes later, in their order. */
    static void untilTold(ConfigResource broker, AlterConfigOp last) throws Exception {
        alter(broker, false, last);
        String wanted = last.configEntry().name() + " = " + last.configEntry().value() + " DYNAMIC";
        for (int i = 0; i < 1200 && !configs(broker, true).toString().contains(wanted); i++) Thread.sleep(50);
    }

    /** Asks again where Kafka's broker answers UnknownServerException, as it has while it took in another change. */
    static Object again(Call call) throws Exception {
        Object found = call.run();
        for (int i = 0; i < 100 && found.toString().contains("!UnknownServerException"); i++) {
            Thread.sleep(100);
            found = call.run();
        }
        return found;
    }

    static void configs() throws Exception {
        create(topic("set", "retention.ms", "7"));
        var T = ConfigResource.Type.TOPIC;
        var B = ConfigResource.Type.BROKER;
        var L = ConfigResource.Type.BROKER_LOGGER;
        var M = ConfigResource.Type.CLIENT_METRICS;
        var SET = AlterConfigOp.OpType.SET;
        var DELETE = AlterConfigOp.OpType.DELETE;
        var APPEND = AlterConfigOp.OpType.APPEND;
        var SUBTRACT = AlterConfigOp.OpType.SUBTRACT;
        ConfigResource set = resource(T, "set"), one = resource(B, "1"), all = resource(B, "");
        show("configs of topic", () -> configs(set, true));
        for (String name : List.of("nowhere", "a b", ""))
            show("configs of topic " + name, () -> configs(resource(T, name), true));
        for (String name : List.of("x"))
            show("configs of broker " + name, () -> configs(resource(B, name), true));
        for (String name : List.of("", "x"))
            show("configs of loggers " + name, () -> configs(resource(L, name), true));
        for (String name : List.of("", "m"))
            show("configs of metrics " + name, () -> configs(resource(M, name), true));
        show("configs of unknown", () -> configs(resource(ConfigResource.Type.UNKNOWN, "x"), true));
        for (boolean only : List.of(true, false)) {
            String how = only ? " validated" : "";
            show("alter set" + how, () -> alter(set, only, op("retention.ms", "8", SET)));
            show("alter two" + how, () -> alter(set, only, op("segment.bytes", "2000", SET), op("retention.ms", null, DELETE)));
            show("alter none" + how, () -> alter(set, only));
            show("alter twice" + how, () -> alter(set, only, op("retention.ms", "9", SET), op("retention.ms", "10", SET)));
            show("alter unknown" + how, () -> alter(set, only, op("no.such", "8", SET)));
            show("alter delete unknown" + how, () -> alter(set, only, op("no.such", null, DELETE)));
            show("alter wrong" + how, () -> alter(set, only, op("retention.ms", "x", SET)));
            show("alter low" + how, () -> alter(set, only, op("segment.bytes", "13", SET)));
            show("alter empty" + how, () -> alter(set, only, op("segment.bytes", "", SET)));
            show("alter null" + how, () -> alter(set, only, op("segment.bytes", null, SET)));
            show("alter null append" + how, () -> alter(set, only, op("cleanup.policy", null, APPEND)));
            show("alter append" + how, () -> alter(set, only, op("cleanup.policy", "compact", APPEND)));
            show("alter append again" + how, () -> alter(set, only, op("cleanup.policy", "compact", APPEND)));
            show("alter append wrong" + how, () -> alter(set, only, op("cleanup.policy", "nothing", APPEND)));
            show("alter subtract" + how, () -> alter(set, only, op("cleanup.policy", "delete", SUBTRACT)));
            show("alter subtract missing" + how, () -> alter(set, only, op("cleanup.policy", "delete", SUBTRACT)));
            show("alter subtract last" + how, () -> alter(set, only, op("cleanup.policy", "compact", SUBTRACT)));
            show("alter append throttled" + how, () -> alter(set, only,
                op("leader.replication.throttled.replicas", "0:1,1:1", APPEND)));
            show("alter append bad throttled" + how, () -> alter(set, only,
                op("leader.replication.throttled.replicas", "x", APPEND)));
            show("alter append not a list" + how, () -> alter(set, only, op("segment.bytes", "1", APPEND)));
            show("alter subtract not a list" + how, () -> alter(set, only, op("segment.bytes", "1", SUBTRACT)));
            show("alter lags" + how, () -> alter(set, only, op("min.compaction.lag.ms", "10", SET), op("max.compaction.lag.ms", "5", SET)));
            show("alter tiered" + how, () -> alter(set, only, op("remote.storage.enable", "true", SET)));
            show("alter missing" + how, () -> alter(resource(T, "nowhere"), only, op("retention.ms", "8", SET)));
            show("alter misnamed" + how, () -> alter(resource(T, "a b"), only, op("retention.ms", "8", SET)));
            show("alter nameless" + how, () -> alter(resource(T, ""), only, op("retention.ms", "8", SET)));
            show("alter broker" + how, () -> alter(one, only, op("log.retention.ms", "100000", SET)));
            show("alter brokers" + how, () -> alter(all, only, op("log.segment.bytes", "1000000", SET)));
            show("alter brokers listener" + how, () -> alter(all, only, op("listener.name.x.ssl.keystore.type", "PEM", SET)));
            show("alter broker fixed" + how, () -> alter(one, only, op("broker.id", "2", SET)));
            show("alter broker dirs" + how, () -> alter(one, only, op("log.dirs", "/x", SET)));
            show("alter broker unknown" + how, () -> alter(one, only, op("no.such", "2", SET)));
            show("alter broker wrong" + how, () -> alter(one, only, op("log.retention.ms", "soon", SET)));
            show("alter broker cluster-wide" + how, () -> alter(one, only, op("message.max.bytes", "2000000", SET)));
            show("alter broker append" + how, () -> again(() -> alter(one, only, op("log.cleanup.policy", "compact", APPEND))));
            show("alter broker subtract" + how, () -> alter(one, only, op("log.cleanup.policy", "delete", SUBTRACT)));
            show("alter broker delete" + how, () -> alter(one, only, op("message.max.bytes", null, DELETE)));
            show("alter broker delete absent" + how, () -> alter(one, only, op("num.io.threads", null, DELETE)));
            show("alter broker threads" + how, () -> alter(one, only, op("num.io.threads", "9", SET)));
            show("alter broker rate" + how, () -> alter(one, only, op("leader.replication.throttled.rate", "9", SET)));
            show("alter broker connections" + how, () -> alter(one, only, op("max.connections", "1000", SET)));
            show("alter broker overrides" + how, () -> alter(one, only, op("max.connections.per.ip.overrides", "127.0.0.9:7", SET)));
            show("alter broker bad overrides" + how, () -> alter(one, only, op("max.connections.per.ip.overrides", "x", SET)));
            show("alter broker retention hours" + how, () -> alter(one, only, op("log.retention.hours", "5", SET)));
            show("alter bad broker" + how, () -> alter(resource(B, "x"), only, op("log.retention.ms", "100000", SET)));
            show("alter metrics" + how, () -> alter(resource(M, "m"), only, op("interval.ms", "1000", SET)));
            show("alter unknown type" + how, () -> alter(resource(ConfigResource.Type.UNKNOWN, "m"), only, op("interval.ms", "1000", SET)));
            show("replace" + how, () -> replace(resource(T, "set"), only, "flush.ms", "5"));
            show("replace unknown" + how, () -> replace(resource(T, "set"), only, "no.such", "5"));
            show("replace wrong" + how, () -> replace(resource(T, "set"), only, "flush.ms", "x"));
            show("replace null" + how, () -> replace(resource(T, "set"), only, "flush.ms", null));
            show("replace missing" + how, () -> replace(resource(T, "nowhere"), only, "flush.ms", "5"));
            show("replace of broker" + how, () -> replace(one, only, "log.cleaner.threads", "2"));
            show("replace fixed" + how, () -> replace(one, only, "broker.id", "2"));
            show("replace logger" + how, () -> replace(resource(L, "1"), only, "root", "INFO"));
            show("replace metrics" + how, () -> replace(resource(M, "m"), only, "interval.ms", "100"));
            untilTold(one, op("log.index.interval.bytes", only ? "4097" : "4098", SET));
            show("configs after" + how, () -> configs(set, false));
            show("configs of broker after" + how, () -> configs(one, false));
            show("configs of brokers after" + how, () -> configs(all, false));
        }
        show("alter back", () -> alter(all, false, op("log.segment.bytes", null, DELETE)));
        show("list metrics", () -> admin.listClientMetricsResources().all().get());
        show("documented", () -> admin.describeConfigs(List.of(set), new DescribeConfigsOptions()
            .includeDocumentation(true)).all().get().get(set).entries().stream().filter(e -> e.documentation() == null)
            .map(ConfigEntry::name).toList());
    }

    // -- groups ------------------------------------------------------------------------------------------

    static KafkaConsumer<byte[], byte[]> consumer(String group, Object... pairs) {
        Map<String, Object> given = config(pairs);
        given.put("group.id", group);
        given.put("auto.offset.reset", "earliest");
        given.put("enable.auto.commit", "false");
        given.put("heartbeat.interval.ms", "100");
        return new KafkaConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Object group(Map<String, KafkaFuture<ConsumerGroupDescription>> groups) {
        TreeMap<String, String> found = new TreeMap<>();
        groups.forEach((name, future) -> {
            try {
                ConsumerGroupDescription it = future.get();
                found.put(name, it.state() + " " + it.type() + " " + it.isSimpleConsumerGroup() + " "
                    + it.partitionAssignor() + " " + it.coordinator().id() + " "
                    + (it.authorizedOperations() == null ? null : new TreeSet<>(it.authorizedOperations())) + " "
                    + it.members().stream().map(m -> m.clientId() + " " + m.host() + " " + m.groupInstanceId() + " "
                        + m.assignment() + " " + m.targetAssignment()).sorted().toList());
            } catch (Exception e) {
                found.put(name, error((Throwable) e));
            }
        });
        return found;
    }

    static Object committed(String group, ListConsumerGroupOffsetsOptions options) throws Exception {
        return new TreeMap<>(admin.listConsumerGroupOffsets(group, options).partitionsToOffsetAndMetadata().get()
            .entrySet().stream().collect(Collectors.toMap(e -> "" + e.getKey(), e -> "" + e.getValue())));
    }

    static Object commit(String group, Object... pairs) {
        Map<TopicPartition, OffsetAndMetadata> given = new HashMap<>();
        for (int i = 0; i < pairs.length; i += 2) given.put((TopicPartition) pairs[i], (OffsetAndMetadata) pairs[i + 1]);
        AlterConsumerGroupOffsetsResult result = admin.alterConsumerGroupOffsets(group, given);
        TreeMap<String, String> found = new TreeMap<>();
        given.keySet().forEach(p -> found.put("" + p, error(result.partitionResult(p))));
        return found;
    }

    static Object uncommit(String group, TopicPartition... partitions) {
        DeleteConsumerGroupOffsetsResult result = admin.deleteConsumerGroupOffsets(group, Set.of(partitions));
        TreeMap<String, String> found = new TreeMap<>();
        for (TopicPartition p : partitions) found.put("" + p, error(result.partitionResult(p)));
        return found;
    }

    static OffsetAndMetadata at(long offset) {
        return new OffsetAndMetadata(offset);
    }

    static void groups() throws Exception {
        create(new NewTopic("read", 2, (short) 1), topic("other"));
        produce("read", 10);
        TopicPartition zero = new TopicPartition("read", 0), one = new TopicPartition("read", 1),
            other = new TopicPartition("other", 0), none = new TopicPartition("nowhere", 0), far = new TopicPartition("read", 9);
        admin.alterConsumerGroupOffsets("warm-up", Map.of(zero, at(1))).all().get();
        show("group commit", () -> commit("simple", zero, at(7), one, new OffsetAndMetadata(3, Optional.of(0), "note")));
        show("group commit beyond", () -> commit("simple", zero, at(1000)));
        show("group commit unknown", () -> commit("simple", none, at(1), far, at(2), other, at(3)));
        show("group commit long", () -> commit("simple", zero, new OffsetAndMetadata(3, "x".repeat(5000))));
        show("group commit nameless", () -> commit("", zero, at(7)));
        show("group committed", () -> committed("simple", new ListConsumerGroupOffsetsOptions()));
        show("group committed some", () -> committed("simple", new ListConsumerGroupOffsetsOptions()
            .topicPartitions(List.of(zero, far, none))));
        show("group committed stable", () -> committed("simple", new ListConsumerGroupOffsetsOptions().requireStable(true)));
        show("group committed by nobody", () -> committed("nobody", new ListConsumerGroupOffsetsOptions()));
        show("group committed nameless", () -> committed("", new ListConsumerGroupOffsetsOptions()));
        show("groups committed", () -> {
            var result = admin.listConsumerGroupOffsets(Map.of("simple", new ListConsumerGroupOffsetsSpec(),
                "nobody", new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(zero))));
            return result.partitionsToOffsetAndMetadata("simple").get().size() + " "
                + result.partitionsToOffsetAndMetadata("nobody").get();
        });
        show("group simple", () -> group(admin.describeConsumerGroups(List.of("simple", "nobody", "")).describedGroups()));
        try (KafkaConsumer<byte[], byte[]> member = consumer("live", "client.id", "c1")) {
            member.subscribe(List.of("read"));
            for (int i = 0; i < 200 && member.assignment().isEmpty(); i++) member.poll(Duration.ofMillis(100));
            member.commitSync(Map.of(zero, at(2), other, at(1)));
            show("group live", () -> group(admin.describeConsumerGroups(List.of("live"),
                new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).describedGroups()));
            show("group live listed", () -> listed(new ListConsumerGroupsOptions()));
            show("group live by state", () -> listed(new ListConsumerGroupsOptions().inStates(Set.of(ConsumerGroupState.STABLE))));
            show("group by type", () -> listed(new ListConsumerGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))));
            show("group by classic", () -> listed(new ListConsumerGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))));
            show("group live deleted", () -> each(admin.deleteConsumerGroups(List.of("live")).deletedGroups()));
            show("group live altered", () -> commit("live", zero, at(1)));
            show("group live offsets deleted", () -> uncommit("live", zero));
            show("group live other deleted", () -> uncommit("live", other));
            show("group live unknown deleted", () -> uncommit("live", none));
            show("group remove unknown", () -> error(admin.removeMembersFromConsumerGroup("live",
                new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("b")))).all()));
            show("group remove all", () -> error(admin.removeMembersFromConsumerGroup("live",
                new RemoveMembersFromConsumerGroupOptions()).all()));
            member.unsubscribe();
        }
        show("group remove from nobody", () -> error(admin.removeMembersFromConsumerGroup("nobody",
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("b")))).all()));
        show("group remove all of nobody", () -> error(admin.removeMembersFromConsumerGroup("nobody",
            new RemoveMembersFromConsumerGroupOptions()).all()));
        show("group empty", () -> group(admin.describeConsumerGroups(List.of("live")).describedGroups()));
        show("group listed", () -> listed(new ListConsumerGroupsOptions()));
        show("group listed empty", () -> listed(new ListConsumerGroupsOptions().inStates(Set.of(ConsumerGroupState.EMPTY))));
        show("group listed dead", () -> listed(new ListConsumerGroupsOptions().inStates(Set.of(ConsumerGroupState.DEAD))));
        show("group offsets deleted", () -> uncommit("simple", zero, none, far));
        show("group offsets deleted of nobody", () -> uncommit("nobody", zero));
        show("group offsets deleted nameless", () -> uncommit("", zero));
        show("group deleted", () -> each(admin.deleteConsumerGroups(List.of("simple", "live", "nobody", "")).deletedGroups()));
        show("group deleted again", () -> each(admin.deleteConsumerGroups(List.of("simple")).deletedGroups()));
        show("group described dead", () -> group(admin.describeConsumerGroups(List.of("simple")).describedGroups()));
    }

    static Object listed(ListConsumerGroupsOptions options) throws Exception {
        return admin.listConsumerGroups(options).all().get().stream().map(g -> g.groupId() + " " + g.state() + " "
            + g.type() + " " + g.isSimpleConsumerGroup()).sorted().toList();
    }

    // -- transactions ------------------------------------------------------------------------------------

    static void transactions() throws Exception {
        create(new NewTopic("ledger", 2, (short) 1), topic("idem"));
        TopicPartition zero = new TopicPartition("ledger", 0), one = new TopicPartition("ledger", 1),
            none = new TopicPartition("nowhere", 0), far = new TopicPartition("ledger", 9), idem = new TopicPartition("idem", 0);
        try (KafkaProducer<byte[], byte[]> plain = producer()) {
            plain.send(new ProducerRecord<>("idem", new byte[1])).get();
            plain.send(new ProducerRecord<>("idem", new byte[1])).get();
        }
        show("producers idempotent", () -> producers(idem));
        show("producers none", () -> producers(zero));
        show("producers of broker", () -> error(admin.describeProducers(List.of(idem), new DescribeProducersOptions().brokerId(1)).partitionResult(idem)).replaceAll("\\d{6,}", "...").replaceAll("producerId=\\d+", "producerId=."));
        show("producers of nowhere by broker", () -> error(admin.describeProducers(List.of(none), new DescribeProducersOptions().brokerId(1)).partitionResult(none)));
        show("transaction unknown", () -> error(admin.describeTransactions(List.of("nobody")).description("nobody")));
        show("transaction nameless", () -> error(admin.describeTransactions(List.of("")).description("")));
        show("transactions none", () -> admin.listTransactions().all().get());
        show("too long", () -> { try (KafkaProducer<byte[], byte[]> p = producer("transactional.id", "long", "transaction.timeout.ms", 2000000)) { p.initTransactions(); return null; } });
        KafkaProducer<byte[], byte[]> open = producer("transactional.id", "open", "transaction.timeout.ms", 60000);
        open.initTransactions();
        show("transactions initialised", () -> transactions(new ListTransactionsOptions()));
        show("transaction initialised", () -> transaction("open"));
        open.beginTransaction();
        open.send(new ProducerRecord<>("ledger", 0, null, new byte[1])).get();
        open.send(new ProducerRecord<>("ledger", 1, null, new byte[1])).get();
        open.sendOffsetsToTransaction(Map.of(idem, at(1)), new ConsumerGroupMetadata("tx-group"));
        show("transactions open", () -> transactions(new ListTransactionsOptions()));
        show("transactions ongoing", () -> transactions(new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING))));
        show("transactions aborting", () -> transactions(new ListTransactionsOptions().filterStates(Set.of(TransactionState.PREPARE_ABORT))));
        show("transactions unknown", () -> transactions(new ListTransactionsOptions().filterStates(Set.of(TransactionState.UNKNOWN))));
        show("transactions of others", () -> transactions(new ListTransactionsOptions().filterProducerIds(Set.of(99999999L))));
        show("transactions long", () -> transactions(new ListTransactionsOptions().filterOnDuration(100000)));
        show("transactions short", () -> transactions(new ListTransactionsOptions().filterOnDuration(0)));
        show("transaction open", () -> transaction("open"));
        show("producers open", () -> producers(zero));
        show("offsets open committed", () -> offsets(Map.of(zero, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED));
        show("offsets open uncommitted", () -> offsets(Map.of(zero, OffsetSpec.latest()), IsolationLevel.READ_UNCOMMITTED));
        show("offsets open greatest", () -> offsets(Map.of(zero, OffsetSpec.maxTimestamp()), IsolationLevel.READ_COMMITTED).toString().replaceAll("at \\d+", "at ..."));
        show("offsets open by time", () -> offsets(Map.of(zero, OffsetSpec.forTimestamp(1)), IsolationLevel.READ_COMMITTED).toString().replaceAll("at \\d+", "at ..."));
        show("pending offsets stable", () -> error(admin.listConsumerGroupOffsets("tx-group", new ListConsumerGroupOffsetsOptions().requireStable(true)).partitionsToOffsetAndMetadata()).replaceAll("\\d{5,}", "..."));
        show("pending offsets", () -> committed("tx-group", new ListConsumerGroupOffsetsOptions()));
        show("pending group described", () -> group(admin.describeConsumerGroups(List.of("tx-group")).describedGroups()));
        show("pending group deleted", () -> each(admin.deleteConsumerGroups(List.of("tx-group")).deletedGroups()));
        show("delete records of open", () -> deleted(zero, RecordsToDelete.beforeOffset(1)));
        open.commitTransaction();
        untilEnded("open");
        show("transaction committed", () -> transaction("open"));
        show("producers committed", () -> producers(zero));
        show("offsets committed", () -> offsets(Map.of(zero, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED));
        show("offsets committed by time", () -> offsets(Map.of(zero, OffsetSpec.forTimestamp(1)), IsolationLevel.READ_COMMITTED).toString().replaceAll("at \\d+", "at ..."));
        show("group's offsets committed", () -> committed("tx-group", new ListConsumerGroupOffsetsOptions()));
        open.beginTransaction();
        open.send(new ProducerRecord<>("ledger", 0, null, new byte[1])).get();
        ProducerState state = admin.describeProducers(List.of(zero)).partitionResult(zero).get().activeProducers().get(0);
        show("abort another's", () -> error(admin.abortTransaction(new AbortTransactionSpec(zero, state.producerId() + 5, (short) 0, 0)).all()));
        show("abort of old coordinator", () -> error(admin.abortTransaction(new AbortTransactionSpec(zero, state.producerId(), (short) state.producerEpoch(), -7)).all()));
        show("abort of old epoch", () -> error(admin.abortTransaction(new AbortTransactionSpec(zero, state.producerId(), (short) (state.producerEpoch() - 1), state.coordinatorEpoch().orElse(0))).all()));
        show("fence", () -> error(admin.fenceProducers(List.of("open")).all()));
        show("commit fenced", () -> { open.commitTransaction(); return null; });
        open.close(Duration.ZERO);
        show("transaction fenced", () -> transaction("open"));
        show("fence unknown", () -> error(admin.fenceProducers(List.of("new-one")).all()));
        show("fenced ids", () -> { var r = admin.fenceProducers(List.of("open")); return r.epochId("open").get() + " " + (r.producerId("open").get() == state.producerId()); });
        KafkaProducer<byte[], byte[]> hung = producer("transactional.id", "hung");
        hung.initTransactions();
        hung.beginTransaction();
        hung.send(new ProducerRecord<>("ledger", 1, null, new byte[1])).get();
        ProducerState left = admin.describeProducers(List.of(one)).partitionResult(one).get().activeProducers().stream()
            .filter(p -> p.currentTransactionStartOffset().isPresent()).findFirst().get();
        show("abort", () -> error(admin.abortTransaction(new AbortTransactionSpec(one, left.producerId(), (short) left.producerEpoch(), left.coordinatorEpoch().orElse(0))).all()));
        show("producers aborted", () -> producers(one));
        show("offsets aborted", () -> offsets(Map.of(one, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED));
        show("commit after abort", () -> { hung.commitTransaction(); return null; });
        hung.close(Duration.ZERO);
        untilEnded("hung");
        show("transactions in the end", () -> transactions(new ListTransactionsOptions()));
    }

    /** Markers may be written after a commit was answered. */
    static void untilEnded(String id) throws Exception {
        for (int i = 0; i < 100 && admin.describeTransactions(List.of(id)).description(id).get().state() != TransactionState.COMPLETE_COMMIT; i++)
            Thread.sleep(50);
        Thread.sleep(200);
    }

    static Object producers(TopicPartition partition) throws Exception {
        return admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers().stream()
            .map(p -> "epoch " + p.producerEpoch() + " sequence " + p.lastSequence() + " coordinator " + p.coordinatorEpoch()
                + " start " + p.currentTransactionStartOffset() + " timed " + (p.lastTimestamp() > 0)).sorted().toList();
    }

    static Object transactions(ListTransactionsOptions options) throws Exception {
        return admin.listTransactions(options).all().get().stream().map(t -> t.transactionalId() + " " + t.state()).sorted().toList();
    }

    static Object transaction(String id) throws Exception {
        TransactionDescription it = admin.describeTransactions(List.of(id)).description(id).get();
        return it.coordinatorId() + " " + it.state() + " epoch " + it.producerEpoch() + " timeout " + it.transactionTimeoutMs()
            + " started " + it.transactionStartTimeMs().isPresent() + " " + new TreeSet<>(it.topicPartitions().stream().map(p -> "" + p).toList());
    }

    // -- quotas and users --------------------------------------------------------------------------------

    static ClientQuotaEntity entity(String... pairs) {
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i < pairs.length; i += 2) given.put(pairs[i], pairs[i + 1]);
        return new ClientQuotaEntity(given);
    }

    static Object quota(ClientQuotaEntity entity, boolean only, Object... pairs) {
        List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2) ops.add(new ClientQuotaAlteration.Op((String) pairs[i], (Double) pairs[i + 1]));
        return each(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, ops)),
            new AlterClientQuotasOptions().validateOnly(only)).values());
    }

    static Object quotas(ClientQuotaFilter filter) throws Exception {
        TreeMap<String, String> found = new TreeMap<>();
        admin.describeClientQuotas(filter).entities().get().forEach((e, v) -> found.put("" + new TreeMap<>(e.entries()), "" + new TreeMap<>(v)));
        return found;
    }

    static void quotas() throws Exception {
        show("quota", () -> quota(entity("user", "alice", "client-id", "app"), false, "producer_byte_rate", 1000.0));
        show("quota user", () -> quota(entity("user", "alice"), false, "consumer_byte_rate", 2000.5, "request_percentage", 1000.0));
        show("quota user default", () -> quota(entity("user", null), false, "consumer_byte_rate", 1e12));
        show("quota client default", () -> quota(entity("client-id", null), false, "controller_mutation_rate", 1e9));
        show("quota both default", () -> quota(entity("user", null, "client-id", null), false, "consumer_byte_rate", 1e12));
        show("quota odd name", () -> quota(entity("user", "a b/c*é"), false, "consumer_byte_rate", 1e12));
        show("quota ip", () -> quota(entity("ip", "1.2.3.4"), false, "connection_creation_rate", 10.0));
        show("quota ip default", () -> quota(entity("ip", null), false, "connection_creation_rate", 100000.0));
        show("quota validated", () -> quota(entity("user", "bob"), true, "consumer_byte_rate", 1.0));
        show("quota unknown", () -> quota(entity("user", "bob"), false, "nonsense", 1.0));
        show("quota of ip for user", () -> quota(entity("user", "bob"), false, "connection_creation_rate", 1.0));
        show("quota of user for ip", () -> quota(entity("ip", "1.2.3.4"), false, "consumer_byte_rate", 1.0));
        show("quota negative", () -> quota(entity("user", "bob"), false, "consumer_byte_rate", -1.0));
        show("quota zero", () -> quota(entity("user", "bob"), false, "consumer_byte_rate", 0.0));
        show("quota fraction", () -> quota(entity("user", "bob"), false, "consumer_byte_rate", 1.5));
        show("quota fraction rate", () -> quota(entity("ip", "1.2.3.5"), false, "connection_creation_rate", 1.5));
        show("quota not a number", () -> quota(entity("user", "bob"), false, "request_percentage", Double.NaN));
        show("quota ip unknown", () -> quota(entity("ip", "no host"), false, "connection_creation_rate", 1.0));
        show("quota ip and user", () -> quota(entity("ip", "1.2.3.4", "user", "bob"), false, "connection_creation_rate", 1.0));
        show("quota of nothing", () -> quota(entity(), false, "consumer_byte_rate", 1.0));
        show("quota of unknown kind", () -> quota(entity("kind", "x"), false, "consumer_byte_rate", 1.0));
        show("quota of empty name", () -> quota(entity("user", ""), false, "consumer_byte_rate", 1.0));
        show("quota remove", () -> quota(entity("user", "alice"), false, "request_percentage", null));
        show("quota remove absent", () -> quota(entity("user", "carol"), false, "request_percentage", null));
        show("quota twice", () -> quota(entity("user", "dora"), false, "consumer_byte_rate", 1e9, "consumer_byte_rate", 2e9));
        show("quotas", () -> quotas(ClientQuotaFilter.all()));
        for (boolean strict : List.of(false, true)) {
            String how = strict ? " only" : "";
            List<List<ClientQuotaFilterComponent>> filters = List.of(
                List.of(ClientQuotaFilterComponent.ofEntity("user", "alice")),
                List.of(ClientQuotaFilterComponent.ofEntityType("user")),
                List.of(ClientQuotaFilterComponent.ofDefaultEntity("user")),
                List.of(ClientQuotaFilterComponent.ofDefaultEntity("user"), ClientQuotaFilterComponent.ofEntityType("client-id")),
                List.of(ClientQuotaFilterComponent.ofEntityType("ip")),
                List.of(ClientQuotaFilterComponent.ofEntityType("ip"), ClientQuotaFilterComponent.ofEntityType("user")),
                List.of(ClientQuotaFilterComponent.ofEntityType("user"), ClientQuotaFilterComponent.ofEntityType("user")),
                List.of(ClientQuotaFilterComponent.ofEntityType("kind")),
                List.of(ClientQuotaFilterComponent.ofEntityType("")),
                List.of());
            for (int i = 0; i < filters.size(); i++) {
                var filter = filters.get(i);
                show("quotas by " + i + how, () -> quotas(strict ? ClientQuotaFilter.containsOnly(filter) : ClientQuotaFilter.contains(filter)));
            }
        }
    }

    static Object users(UserScramCredentialAlteration... alterations) {
        return each(admin.alterUserScramCredentials(List.of(alterations)).values());
    }

    static UserScramCredentialUpsertion secret(String user, ScramMechanism mechanism, int iterations) {
        return new UserScramCredentialUpsertion(user, new ScramCredentialInfo(mechanism, iterations), "secret".getBytes(), "salt".getBytes());
    }

    static void users() throws Exception {
        var A = ScramMechanism.SCRAM_SHA_256;
        var B = ScramMechanism.SCRAM_SHA_512;
        show("users none", () -> admin.describeUserScramCredentials().all().get());
        show("user set", () -> users(secret("alice", A, 4096), secret("alice", B, 8192)));
        show("user weak", () -> users(secret("bob", A, 4095)));
        show("user too strong", () -> users(secret("bob", A, 16385)));
        show("user strong", () -> users(secret("strong", B, 16384)));
        show("user nameless", () -> users(secret("", A, 4096)));
        show("user of unknown", () -> users(secret("bob", ScramMechanism.UNKNOWN, 4096)));
        show("user twice", () -> users(secret("bob", A, 4096), secret("bob", A, 5000)));
        show("user set and deleted", () -> users(secret("bob", A, 4096), new UserScramCredentialDeletion("bob", A)));
        show("user some", () -> users(secret("carol", A, 4096), secret("dora", A, 1)));
        show("user deleted absent", () -> users(new UserScramCredentialDeletion("nobody", A)));
        show("user deleted", () -> users(new UserScramCredentialDeletion("alice", A)));
        show("user deleted again", () -> users(new UserScramCredentialDeletion("alice", A)));
        show("user deleted of unknown", () -> users(new UserScramCredentialDeletion("alice", ScramMechanism.UNKNOWN)));
        show("user deleted nameless", () -> users(new UserScramCredentialDeletion("", A)));
        show("users", () -> new TreeMap<>(admin.describeUserScramCredentials().all().get()));
        show("users named", () -> new TreeSet<>(admin.describeUserScramCredentials(List.of("alice", "nobody")).users().get()));
        show("user described", () -> admin.describeUserScramCredentials(List.of("alice")).description("alice").get());
        show("user nobody described", () -> admin.describeUserScramCredentials(List.of("nobody")).description("nobody").get());
        show("user described twice", () -> admin.describeUserScramCredentials(List.of("alice", "alice")).description("alice").get());
        show("user nameless described", () -> admin.describeUserScramCredentials(List.of("")).description("").get());
    }

    // -- delegation tokens -------------------------------------------------------------------------------

    static void tokens() throws Exception {
        users(secret("tok", ScramMechanism.SCRAM_SHA_256, 4096));
        users(secret("pal", ScramMechanism.SCRAM_SHA_256, 4096));
        show("token of anonymous", () -> error(admin.createDelegationToken().delegationToken()));
        show("tokens of anonymous", () -> error(admin.describeDelegationToken().delegationTokens()));
        show("renew of anonymous", () -> error(admin.renewDelegationToken(new byte[3]).expiryTimestamp()));
        show("expire of anonymous", () -> error(admin.expireDelegationToken(new byte[3]).expiryTimestamp()));
        Admin tok = null;
        for (int i = 0; i < 50; i++) { // a broker hears of a new user in its own time
            tok = login("tok", "secret", "SCRAM-SHA-256", false);
            try {
                tok.listTopics().names().get();
                break;
            } catch (ExecutionException e) {
                tok.close();
                Thread.sleep(100);
            }
        }
        Admin user = tok, pal = login("pal", "secret", "SCRAM-SHA-256", false), root = login("admin", "admin-secret", "PLAIN", false);
        var made = user.createDelegationToken(new CreateDelegationTokenOptions().maxlifeTimeMs(100000)
            .renewers(List.of(new KafkaPrincipal("User", "pal")))).delegationToken().get();
        var info = made.tokenInfo();
        show("token", () -> info.owner() + " " + info.tokenRequester() + " " + info.renewers() + " "
            + (info.maxTimestamp() - info.issueTimestamp()) + " " + (info.expiryTimestamp() - info.issueTimestamp()));
        show("token of default", () -> { var i = user.createDelegationToken().delegationToken().get().tokenInfo();
            return (i.maxTimestamp() - i.issueTimestamp()) + " " + (i.expiryTimestamp() - i.issueTimestamp()); });
        show("token longer", () -> { var i = user.createDelegationToken(new CreateDelegationTokenOptions()
            .maxlifeTimeMs(Long.MAX_VALUE / 2)).delegationToken().get().tokenInfo();
            return (i.maxTimestamp() - i.issueTimestamp()) + " " + (i.expiryTimestamp() - i.issueTimestamp()); });
        show("token for a group", () -> error(user.createDelegationToken(new CreateDelegationTokenOptions()
            .renewers(List.of(new KafkaPrincipal("Group", "pal")))).delegationToken()));
        show("token for another", () -> user.createDelegationToken(new CreateDelegationTokenOptions()
            .owner(new KafkaPrincipal("User", "pal"))).delegationToken().get().tokenInfo().owner());
        show("token for another by root", () -> { var i = root.createDelegationToken(new CreateDelegationTokenOptions()
            .owner(new KafkaPrincipal("User", "pal"))).delegationToken().get().tokenInfo(); return i.owner() + " " + i.tokenRequester(); });
        Thread.sleep(300);
        show("tokens", () -> tokens(user, new DescribeDelegationTokenOptions()));
        show("tokens of pal", () -> tokens(pal, new DescribeDelegationTokenOptions()));
        show("tokens of root", () -> tokens(root, new DescribeDelegationTokenOptions()));
        show("tokens owned by tok", () -> tokens(root, new DescribeDelegationTokenOptions().owners(List.of(new KafkaPrincipal("User", "tok")))));
        show("tokens owned by nobody", () -> tokens(user, new DescribeDelegationTokenOptions().owners(List.of())));
        show("renew by pal", () -> pal.renewDelegationToken(made.hmac(), new RenewDelegationTokenOptions().renewTimePeriodMs(5000)).expiryTimestamp().get() > 0);
        show("renew by root", () -> error(root.renewDelegationToken(made.hmac()).expiryTimestamp()));
        show("renew by owner", () -> user.renewDelegationToken(made.hmac()).expiryTimestamp().get() == info.maxTimestamp());
        show("renew unknown", () -> error(user.renewDelegationToken(new byte[3]).expiryTimestamp()));
        show("renew negative", () -> user.renewDelegationToken(made.hmac(), new RenewDelegationTokenOptions().renewTimePeriodMs(-1)).expiryTimestamp().get() == info.maxTimestamp());
        show("expire unknown", () -> error(user.expireDelegationToken(new byte[3]).expiryTimestamp()));
        show("expire by root", () -> error(root.expireDelegationToken(made.hmac()).expiryTimestamp()));
        try (Admin by = login(info.tokenId(), made.hmacAsBase64String(), "SCRAM-SHA-256", true)) {
            show("by token", () -> error(by.createDelegationToken().delegationToken()));
            show("by token described", () -> error(by.describeDelegationToken().delegationTokens()));
            show("by token renewed", () -> error(by.renewDelegationToken(made.hmac()).expiryTimestamp()));
            show("by token expired", () -> error(by.expireDelegationToken(made.hmac()).expiryTimestamp()));
        }
        show("expire later", () -> user.expireDelegationToken(made.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(1000)).expiryTimestamp().get() > 0);
        show("expire now", () -> user.expireDelegationToken(made.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get() > 0);
        Thread.sleep(300);
        show("expire again", () -> error(user.expireDelegationToken(made.hmac()).expiryTimestamp()));
        show("wrong password", () -> { try (Admin wrong = login("tok", "other", "SCRAM-SHA-256", false)) { return wrong.listTopics().names().get(); } });
        show("wrong mechanism", () -> { try (Admin wrong = login("tok", "secret", "SCRAM-SHA-512", false)) { return wrong.listTopics().names().get(); } });
        show("wrong plain", () -> { try (Admin wrong = login("admin", "wrong", "PLAIN", false)) { return wrong.listTopics().names().get(); } });
        user.close();
        pal.close();
        root.close();
    }

    static Object tokens(Admin of, DescribeDelegationTokenOptions options) throws Exception {
        return of.describeDelegationToken(options).delegationTokens().get().stream()
            .map(t -> t.tokenInfo().owner() + " " + t.tokenInfo().renewers() + " " + t.hmac().length).sorted().toList();
    }

    // -- replicas and cluster ----------------------------------------------------------------------------

    static Object reassign(TopicPartition partition, Integer... brokers) {
        return each(admin.alterPartitionReassignments(Map.of(partition, brokers.length == 0 ? Optional.empty()
            : Optional.of(new NewPartitionReassignment(List.of(brokers))))).values());
    }

    static Object elect(ElectionType type, TopicPartition... partitions) throws Exception {
        TreeMap<String, String> found = new TreeMap<>();
        admin.electLeaders(type, partitions.length == 0 ? null : Set.of(partitions)).partitions().get()
            .forEach((p, e) -> found.put("" + p, e.map(AdminCompared::error).orElse("elected")));
        return found;
    }

    static void replicas() throws Exception {
        create(new NewTopic("copies", 2, (short) 1));
        produce("copies", 5);
        TopicPartition zero = new TopicPartition("copies", 0), far = new TopicPartition("copies", 9), none = new TopicPartition("nowhere", 0);
        for (ElectionType type : ElectionType.values()) {
            show("elect " + type, () -> elect(type, zero));
            show("elect far " + type, () -> elect(type, far, none));
            show("elect all " + type, () -> elect(type));
        }
        show("reassign as is", () -> reassign(zero, 1));
        show("reassign away", () -> reassign(zero, 2));
        show("reassign too", () -> reassign(zero, 1, 2));
        show("reassign twice", () -> reassign(zero, 1, 1));
        show("reassign negative", () -> reassign(zero, -1));
        show("reassign far", () -> reassign(far, 1));
        show("reassign none", () -> reassign(none, 1));
        show("reassign cancel", () -> reassign(zero));
        show("reassign cancel far", () -> reassign(far));
        show("reassignments", () -> admin.listPartitionReassignments().reassignments().get());
        show("reassignments of", () -> admin.listPartitionReassignments(Set.of(zero)).reassignments().get());
        show("reassignments of none", () -> admin.listPartitionReassignments(Set.of(none)).reassignments().get());
        show("dirs", () -> dirs(1));
        TopicPartitionReplica here = new TopicPartitionReplica("copies", 0, 1);
        show("replica dirs", () -> { var it = admin.describeReplicaLogDirs(List.of(here)).values().get(here).get();
            return (it.getCurrentReplicaLogDir() != null) + " " + it.getCurrentReplicaOffsetLag() + " " + it.getFutureReplicaLogDir() + " " + it.getFutureReplicaOffsetLag(); });
        TopicPartitionReplica nowhere = new TopicPartitionReplica("nowhere", 0, 1);
        show("replica dirs of nowhere", () -> admin.describeReplicaLogDirs(List.of(nowhere)).values().get(nowhere).get());
        String current = admin.describeReplicaLogDirs(List.of(here)).values().get(here).get().getCurrentReplicaLogDir();
        String other = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).keySet().stream().filter(d -> !d.equals(current)).findFirst().get();
        show("move to itself", () -> each(admin.alterReplicaLogDirs(Map.of(here, current)).values()));
        show("move nowhere", () -> each(admin.alterReplicaLogDirs(Map.of(here, "/no/such/dir")).values()));
        show("move relative", () -> each(admin.alterReplicaLogDirs(Map.of(here, "data")).values()));
        show("move unknown", () -> each(admin.alterReplicaLogDirs(Map.of(nowhere, other)).values()));
        show("move far", () -> each(admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("copies", 9, 1), other)).values()));
        show("move", () -> each(admin.alterReplicaLogDirs(Map.of(here, other)).values()));
        for (int i = 0; i < 100; i++) {
            var it = admin.describeReplicaLogDirs(List.of(here)).values().get(here).get();
            if (it.getFutureReplicaLogDir() == null && other.equals(it.getCurrentReplicaLogDir())) break;
            Thread.sleep(100);
        }
        show("moved", () -> other.equals(admin.describeReplicaLogDirs(List.of(here)).values().get(here).get().getCurrentReplicaLogDir()));
        show("offsets moved", () -> offsets(Map.of(zero, OffsetSpec.latest()), IsolationLevel.READ_UNCOMMITTED));
    }

    static Object dirs(int broker) throws Exception {
        TreeMap<String, String> found = new TreeMap<>();
        admin.describeLogDirs(List.of(broker)).descriptions().get(broker).get().forEach((path, it) -> found.put(
            path.replaceAll(".*/", ""), it.error() + " " + (it.totalBytes().orElse(0) > 0) + (it.usableBytes().orElse(0) > 0)
            + " " + it.replicaInfos().entrySet().stream().filter(e -> e.getKey().topic().equals("copies"))
            .map(e -> (e.getValue().size() > 0) + " " + e.getValue().offsetLag() + " " + e.getValue().isFuture()).sorted().toList().size()));
        return found.size();
    }

    static void cluster() throws Exception {
        show("cluster", () -> { var it = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return it.nodes().get().size() + " " + it.controller().get().id() + " " + it.nodes().get().iterator().next().rack()
                + " " + new TreeSet<>(it.authorizedOperations().get()) + " " + it.clusterId().get().length(); });
        show("cluster plain", () -> admin.describeCluster().authorizedOperations().get());
        show("features", () -> { var it = admin.describeFeatures().featureMetadata().get(); return it.finalizedFeatures() + " " + it.finalizedFeaturesEpoch().isPresent() + " " + it.supportedFeatures(); });
        for (boolean only : List.of(true, false))
            for (var type : List.of(FeatureUpdate.UpgradeType.UPGRADE, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE))
                for (String name : List.of("metadata.version", "kraft.version", "nonsense"))
                    show("feature " + name + " " + type + " " + only, () -> each(admin.updateFeatures(Map.of(name, new FeatureUpdate((short) 5, type)),
                        new UpdateFeaturesOptions().validateOnly(only)).values()));
        show("feature deleted", () -> each(admin.updateFeatures(Map.of("nonsense", new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE)),
            new UpdateFeaturesOptions()).values()));
        show("quorum", () -> error(admin.describeMetadataQuorum().quorumInfo()));
        show("unregister", () -> error(admin.unregisterBroker(1).all()));
        show("unregister unknown", () -> error(admin.unregisterBroker(77).all()));
        show("voter", () -> error(admin.addRaftVoter(3, new Uuid(3, 3), Set.of(new RaftVoterEndpoint("x", "localhost", 4))).all()));
        show("voter removed", () -> error(admin.removeRaftVoter(3, new Uuid(3, 3)).all()));
        show("client instance", () -> admin.clientInstanceId(Duration.ofSeconds(3)));
    }

    // -- ACLs --------------------------------------------------------------------------------------------

    static AclBinding acl(ResourceType type, String name, PatternType pattern, String who, String host, AclOperation op, AclPermissionType kind) {
        return new AclBinding(new ResourcePattern(type, name, pattern), new AccessControlEntry(who, host, op, kind));
    }

    static Object acls(AclBinding... bindings) {
        return each(admin.createAcls(List.of(bindings)).values());
    }

    static Object acls(AclBindingFilter filter) throws Exception {
        return admin.describeAcls(filter).values().get().stream().map(Object::toString).sorted().toList();
    }

    static void acls() throws Exception {
        var T = ResourceType.TOPIC;
        var L = PatternType.LITERAL;
        var ALLOW = AclPermissionType.ALLOW;
        var R = AclOperation.READ;
        show("acls none", () -> acls(AclBindingFilter.ANY));
        show("acl", () -> acls(acl(T, "ord", PatternType.PREFIXED, "User:alice", "*", R, ALLOW),
            acl(ResourceType.GROUP, "*", L, "User:alice", "127.0.0.1", R, AclPermissionType.DENY)));
        show("acl again", () -> acls(acl(T, "ord", PatternType.PREFIXED, "User:alice", "*", R, ALLOW)));
        show("acl cluster", () -> acls(acl(ResourceType.CLUSTER, "kafka-cluster", L, "User:alice", "*", AclOperation.ALTER, ALLOW)));
        show("acl other cluster", () -> acls(acl(ResourceType.CLUSTER, "another", L, "User:alice", "*", AclOperation.ALTER, ALLOW)));
        show("acl nameless", () -> acls(acl(T, "", L, "User:alice", "*", R, ALLOW)));
        show("acl bad principal", () -> acls(acl(T, "x", L, "alice", "*", R, ALLOW)));
        show("acl no principal", () -> acls(acl(T, "x", L, "", "*", R, ALLOW)));
        show("acl bad host", () -> acls(acl(T, "x", L, "User:alice", "", R, ALLOW)));
        show("acl named host", () -> acls(acl(T, "x", L, "User:alice", "example.org", R, ALLOW)));
        show("acl wrong operation", () -> acls(acl(T, "x", L, "User:alice", "*", AclOperation.CLUSTER_ACTION, ALLOW)));
        show("acl any operation", () -> acls(acl(T, "x", L, "User:alice", "*", AclOperation.ANY, ALLOW)));
        show("acl any type", () -> acls(acl(ResourceType.ANY, "x", L, "User:alice", "*", R, ALLOW)));
        show("acl any pattern", () -> acls(acl(T, "x", PatternType.ANY, "User:alice", "*", R, ALLOW)));
        show("acl match pattern", () -> acls(acl(T, "x", PatternType.MATCH, "User:alice", "*", R, ALLOW)));
        show("acl any permission", () -> acls(acl(T, "x", L, "User:alice", "*", R, AclPermissionType.ANY)));
        show("acl odd topic", () -> acls(acl(T, "a b", L, "User:alice", "*", R, ALLOW)));
        show("acl token", () -> acls(acl(ResourceType.DELEGATION_TOKEN, "t", L, "User:alice", "*", AclOperation.DESCRIBE, ALLOW)));
        show("acl user", () -> acls(acl(ResourceType.USER, "User:x", L, "User:alice", "*", AclOperation.CREATE_TOKENS, ALLOW)));
        show("acl transactional", () -> acls(acl(ResourceType.TRANSACTIONAL_ID, "t", L, "User:alice", "*", AclOperation.WRITE, ALLOW)));
        show("acls", () -> acls(AclBindingFilter.ANY));
        for (var pattern : List.of(L, PatternType.PREFIXED, PatternType.MATCH, PatternType.ANY))
            for (String name : Arrays.asList("orders", "ord", "*", null))
                show("acls of " + name + " " + pattern, () -> acls(new AclBindingFilter(new ResourcePatternFilter(ResourceType.ANY, name, pattern), AccessControlEntryFilter.ANY)));
        show("acls of principal", () -> acls(new AclBindingFilter(ResourcePatternFilter.ANY, new AccessControlEntryFilter("User:alice", null, AclOperation.ANY, AclPermissionType.DENY))));
        show("acls of unknown", () -> acls(new AclBindingFilter(new ResourcePatternFilter(ResourceType.UNKNOWN, "x", L), AccessControlEntryFilter.ANY)));
        show("acls of bad filter principal", () -> acls(new AclBindingFilter(ResourcePatternFilter.ANY, new AccessControlEntryFilter("alice", null, AclOperation.ANY, AclPermissionType.ANY))));
        users(secret("eve", ScramMechanism.SCRAM_SHA_256, 4096));
        acls(acl(T, "ord", PatternType.PREFIXED, "User:ann", "*", R, ALLOW), acl(T, "secret", L, "User:ann", "*", AclOperation.DESCRIBE, ALLOW),
            acl(T, "deny", L, "User:eve", "*", AclOperation.ALL, AclPermissionType.DENY));
        create(topic("orders"), topic("secret"), topic("deny"));
        Admin eve = null;
        for (int i = 0; i < 50; i++) {
            eve = login("eve", "secret", "SCRAM-SHA-256", false);
            try {
                eve.listTopics().names().get();
                break;
            } catch (ExecutionException e) {
                eve.close();
                Thread.sleep(100);
            }
        }
        Thread.sleep(500);
        Admin root = admin;
        admin = eve;
        TopicPartition secret = new TopicPartition("secret", 0), orders = new TopicPartition("orders", 0);
        show("eve list", () -> new TreeSet<>(admin.listTopics().names().get()).contains("secret"));
        show("eve describe", () -> described(admin.describeTopics(List.of("secret", "deny", "nowhere"))));
        show("eve describe id", () -> error(admin.describeTopics(TopicCollection.ofTopicIds(List.of(root.describeTopics(List.of("secret")).allTopicNames().get().get("secret").topicId()))).allTopicIds()));
        show("eve create", () -> create(topic("new-of-eve")));
        show("eve delete", () -> each(admin.deleteTopics(List.of("secret", "deny")).topicNameValues()));
        show("eve partitions", () -> each(admin.createPartitions(Map.of("secret", NewPartitions.increaseTo(9))).values()));
        show("eve configs", () -> configs(resource(ConfigResource.Type.TOPIC, "secret"), false));
        show("eve configs of broker", () -> configs(resource(ConfigResource.Type.BROKER, "1"), false));
        show("eve alter", () -> alter(resource(ConfigResource.Type.TOPIC, "secret"), false, op("retention.ms", "5", AlterConfigOp.OpType.SET)));
        show("eve alter broker", () -> alter(resource(ConfigResource.Type.BROKER, "1"), false, op("log.retention.ms", "5", AlterConfigOp.OpType.SET)));
        show("eve alter logger", () -> alter(resource(ConfigResource.Type.BROKER_LOGGER, "1"), false, op("root", "INFO", AlterConfigOp.OpType.SET)));
        show("eve offsets", () -> offsets(Map.of(secret, OffsetSpec.latest()), IsolationLevel.READ_UNCOMMITTED));
        show("eve delete records", () -> deleted(secret, RecordsToDelete.beforeOffset(0)));
        show("eve groups", () -> listed(new ListConsumerGroupsOptions()).toString().length() > 2);
        show("eve group", () -> group(admin.describeConsumerGroups(List.of("g")).describedGroups()));
        show("eve group offsets", () -> error(admin.listConsumerGroupOffsets("g").partitionsToOffsetAndMetadata()));
        show("eve group alter", () -> commit("g", secret, at(1)));
        show("eve group delete", () -> each(admin.deleteConsumerGroups(List.of("g")).deletedGroups()));
        show("eve group offsets delete", () -> uncommit("g", secret));
        show("eve producers", () -> error(admin.describeProducers(List.of(secret)).all()));
        show("eve transactions", () -> admin.listTransactions().all().get().size() >= 0);
        show("eve transaction", () -> error(admin.describeTransactions(List.of("t")).all()));
        show("eve fence", () -> error(admin.fenceProducers(List.of("t")).all()));
        show("eve dirs", () -> error(admin.describeLogDirs(List.of(1)).allDescriptions()));
        show("eve move", () -> each(admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("secret", 0, 1), "/x")).values()));
        show("eve elect", () -> elect(ElectionType.PREFERRED, secret));
        show("eve reassign", () -> reassign(secret, 1));
        show("eve reassignments", () -> error(admin.listPartitionReassignments().reassignments()));
        show("eve acls", () -> acls(AclBindingFilter.ANY));
        show("eve acl", () -> acls(acl(T, "x", L, "User:eve", "*", R, ALLOW)));
        show("eve acl delete", () -> error(admin.deleteAcls(List.of(AclBindingFilter.ANY)).all()));
        show("eve quota", () -> quota(entity("user", "eve"), false, "consumer_byte_rate", 1.0));
        show("eve quotas", () -> quotas(ClientQuotaFilter.all()));
        show("eve user", () -> users(secret("eve2", ScramMechanism.SCRAM_SHA_256, 4096)));
        show("eve users", () -> error(admin.describeUserScramCredentials().all()));
        show("eve cluster", () -> new TreeSet<>(admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations().get()));
        show("eve feature", () -> each(admin.updateFeatures(Map.of("x", new FeatureUpdate((short) 5, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).values()));
        show("eve operations", () -> new TreeSet<>(admin.describeTopics(List.of("orders"), new DescribeTopicsOptions().includeAuthorizedOperations(true)).topicNameValues().get("orders").get().authorizedOperations()));
        admin = root;
        eve.close();
        show("acl delete some", () -> admin.deleteAcls(List.of(new AclBindingFilter(new ResourcePatternFilter(T, "ord", PatternType.PREFIXED), AccessControlEntryFilter.ANY))).all().get().size());
        show("acl delete absent", () -> admin.deleteAcls(List.of(new AclBindingFilter(new ResourcePatternFilter(T, "absent", L), AccessControlEntryFilter.ANY))).all().get().size());
        show("acl delete all", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get().size());
        show("acls in the end", () -> acls(AclBindingFilter.ANY));
    }
}
