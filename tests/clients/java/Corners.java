import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.*;

/** Corners of Java's producer and consumer. Prints one line for each scenario that came out as Kafka documents it. */
public class Corners {
    static String bootstrap;
    static Admin admin;

    interface Scenario { void run(String topic) throws Exception; }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("throttled", Corners::throttled); // which waits for longest
        scenarios.put("compressions", Corners::compressions);
        scenarios.put("large", Corners::large);
        scenarios.put("too-large", Corners::tooLarge);
        scenarios.put("times", Corners::times);
        scenarios.put("append-time", Corners::appendTime);
        scenarios.put("pause", Corners::pause);
        scenarios.put("seek", Corners::seek);
        scenarios.put("out-of-range", Corners::outOfRange);
        scenarios.put("interceptors", Corners::interceptors);
        scenarios.put("max-poll", Corners::maxPoll);
        scenarios.put("offsets-of-a-transaction", Corners::offsetsOfATransaction);
        scenarios.put("offsets-of-a-zombie", Corners::offsetsOfAZombie);
        scenarios.put("fenced", Corners::fenced);
        scenarios.put("abort-and-go-on", Corners::abortAndGoOn);
        scenarios.put("timed-out", Corners::timedOut);
        scenarios.put("cooperative", Corners::cooperative);
        scenarios.put("compacted", Corners::compacted);
        scenarios.put("metadata", Corners::metadata);
        scenarios.put("pattern", Corners::pattern);
        scenarios.put("deleted-and-made-again", Corners::deletedAndMadeAgain);
        scenarios.put("restarts", Corners::restarts); // for whoever restarts the broker while it runs
        if (arguments.length == 1) scenarios.remove("restarts");
        if (arguments.length > 1) scenarios.keySet().retainAll(List.of(arguments));
        // Several at once: each has topics, groups and ids of its own, and waits more than it works.
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<String>> outcomes = new ArrayList<>();
        scenarios.forEach((name, scenario) -> outcomes.add(threads.submit(() -> outcome(name, scenario))));
        threads.shutdown();
        for (var each : outcomes) System.out.println(each.get());
        admin.close();
    }

    static String outcome(String name, Scenario scenario) {
        try {
            scenario.run(name);
            return name;
        } catch (Throwable e) {
            return name + " failed: " + e;
        }
    }

    // -- tools -------------------------------------------------------------------------------------------

    static void check(boolean condition, Object what) {
        if (!condition) throw new AssertionError(what);
    }

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> given = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        for (int i = 0; i < pairs.length; i += 2) given.put((String) pairs[i], pairs[i + 1]);
        return given;
    }

    static KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(config(pairs), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, Object... pairs) {
        Map<String, Object> given = config("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "heartbeat.interval.ms", "100", "session.timeout.ms", "30000", "fetch.max.wait.ms", "100");
        given.putAll(config(pairs));
        return new KafkaConsumer<>(given, new StringDeserializer(), new StringDeserializer());
    }

    static void create(String topic, int partitions, String... configs) throws Exception {
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i < configs.length; i += 2) given.put(configs[i], configs[i + 1]);
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(given))).all().get();
    }

    static void produce(String topic, int partition, int count) {
        try (var producer = producer()) {
            for (int i = 0; i < count; i++) producer.send(new ProducerRecord<>(topic, partition, 1000L * i, "k" + i, "v" + i));
        }
    }

    static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        until(count + " records", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(found::add);
            return found.size() >= count;
        });
        return found;
    }

    static void until(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!condition.getAsBoolean()) check(System.nanoTime() < deadline, "not within 60 s: " + what);
    }

    static void fails(Class<?> expected, Callable<?> call) {
        try {
            call.call();
        } catch (Throwable e) {
            Throwable found = e instanceof ExecutionException ? e.getCause() : e;
            check(expected.isInstance(found), expected + " was expected, not " + found);
            return;
        }
        throw new AssertionError(expected + " was expected");
    }

    static TopicPartition first(String topic) {
        return new TopicPartition(topic, 0);
    }

    // -- records -----------------------------------------------------------------------------------------

    static void compressions(String topic) throws Exception {
        create(topic, 1, "retention.ms", "-1");
        List<String> codecs = List.of("none", "gzip", "snappy", "lz4", "zstd");
        for (String codec : codecs)
            try (var producer = producer("compression.type", codec, "linger.ms", "50")) {
                for (int i = 0; i < 100; i++) {
                    var record = new ProducerRecord<>(topic, 0, 5000L + i, "k" + i, codec.repeat(20) + i);
                    record.headers().add(new RecordHeader("h", codec.getBytes())).add("null", null);
                    producer.send(record);
                }
            }
        try (var consumer = consumer(topic, "check.crcs", "true")) {
            consumer.assign(List.of(first(topic)));
            var found = read(consumer, 500);
            for (int i = 0; i < 500; i++) {
                String codec = codecs.get(i / 100);
                var it = found.get(i);
                check(it.offset() == i && it.value().equals(codec.repeat(20) + i % 100) && it.timestamp() == 5000 + i % 100, it);
                check(new String(it.headers().lastHeader("h").value()).equals(codec), it);
                check(it.headers().lastHeader("null").value() == null && it.leaderEpoch().equals(Optional.of(0)), it);
            }
        }
    }

    static void large(String topic) throws Exception {
        create(topic, 1, "max.message.bytes", "12000000");
        String value = "x".repeat(9_000_000);
        try (var producer = producer("max.request.size", "20000000", "buffer.memory", "40000000")) {
            for (int i = 0; i < 3; i++) producer.send(new ProducerRecord<>(topic, "k", value + i)).get();
        }
        try (var consumer = consumer(topic, "max.partition.fetch.bytes", "1000", "fetch.max.bytes", "1000")) {
            consumer.assign(List.of(first(topic)));
            var found = read(consumer, 3);
            for (int i = 0; i < 3; i++) check(found.get(i).value().equals(value + i), i);
        }
    }

    static void tooLarge(String topic) throws Exception {
        create(topic, 1, "max.message.bytes", "1000");
        try (var producer = producer()) {
            fails(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, "x".repeat(2000))).get());
            check(producer.send(new ProducerRecord<>(topic, "x")).get().offset() == 0, "the next goes on");
        }
    }

    static void times(String topic) throws Exception {
        create(topic, 2, "retention.ms", "-1");
        produce(topic, 0, 10);
        try (var consumer = consumer(topic)) {
            TopicPartition one = new TopicPartition(topic, 1);
            var found = consumer.offsetsForTimes(Map.of(first(topic), 4500L, one, 0L));
            check(found.get(first(topic)).offset() == 5 && found.get(first(topic)).timestamp() == 5000, found);
            check(found.get(one) == null, found);
            check(consumer.offsetsForTimes(Map.of(first(topic), 9001L)).get(first(topic)) == null, "beyond");
            check(consumer.beginningOffsets(List.of(first(topic), one)).equals(Map.of(first(topic), 0L, one, 0L)), "beginning");
            check(consumer.endOffsets(List.of(first(topic), one)).equals(Map.of(first(topic), 10L, one, 0L)), "end");
            consumer.assign(List.of(first(topic), one));
            check(consumer.currentLag(first(topic)).isEmpty(), "no lag is known");
            consumer.seekToBeginning(List.of(first(topic)));
            read(consumer, 10);
            check(consumer.currentLag(first(topic)).equals(OptionalLong.of(0)), consumer.currentLag(first(topic)));
        }
    }

    static void appendTime(String topic) throws Exception {
        create(topic, 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        try (var producer = producer()) {
            var sent = producer.send(new ProducerRecord<>(topic, 0, 5L, "k", "v")).get();
            check(sent.timestamp() >= before - 1000, sent.timestamp());
            try (var consumer = consumer(topic)) {
                consumer.assign(List.of(first(topic)));
                var it = read(consumer, 1).get(0);
                check(it.timestampType() == TimestampType.LOG_APPEND_TIME && it.timestamp() == sent.timestamp(), it);
            }
        }
        String strict = topic + "-strict";
        create(strict, 1, "message.timestamp.before.max.ms", "1000");
        try (var producer = producer()) {
            fails(InvalidTimestampException.class, () -> producer.send(new ProducerRecord<>(strict, 0, 5L, "k", "v")).get());
        }
    }

    // -- consumers ---------------------------------------------------------------------------------------

    static void pause(String topic) throws Exception {
        create(topic, 2);
        produce(topic, 0, 50);
        produce(topic, 1, 50);
        try (var consumer = consumer(topic, "max.poll.records", "5")) {
            TopicPartition one = new TopicPartition(topic, 1);
            consumer.subscribe(List.of(topic));
            until("an assignment", () -> { consumer.poll(Duration.ofMillis(50)); return consumer.assignment().size() == 2; });
            consumer.seekToBeginning(consumer.assignment());
            consumer.pause(List.of(one));
            var found = read(consumer, 50);
            check(found.stream().allMatch(r -> r.partition() == 0), "partition 1 is paused");
            check(consumer.poll(Duration.ofMillis(200)).isEmpty(), "partition 1 is paused");
            consumer.resume(List.of(one));
            check(read(consumer, 50).stream().allMatch(r -> r.partition() == 1), "partition 1 goes on");
        }
    }

    static void seek(String topic) throws Exception {
        create(topic, 1);
        produce(topic, 0, 20);
        try (var consumer = consumer(topic)) {
            consumer.assign(List.of(first(topic)));
            consumer.seek(first(topic), 15);
            check(read(consumer, 5).get(0).offset() == 15, "15");
            consumer.seek(first(topic), new OffsetAndMetadata(3, Optional.of(0), "note"));
            check(read(consumer, 17).get(0).offset() == 3, "3");
            consumer.commitSync(Map.of(first(topic), new OffsetAndMetadata(7, Optional.of(0), "note")));
            var committed = consumer.committed(Set.of(first(topic))).get(first(topic));
            check(committed.equals(new OffsetAndMetadata(7, Optional.of(0), "note")), committed);
        }
        try (var consumer = consumer(topic)) {
            consumer.assign(List.of(first(topic)));
            check(read(consumer, 13).get(0).offset() == 7, "what was committed");
        }
    }

    static void outOfRange(String topic) throws Exception {
        create(topic, 1);
        produce(topic, 0, 20);
        admin.deleteRecords(Map.of(first(topic), RecordsToDelete.beforeOffset(5))).all().get();
        try (var consumer = consumer(topic, "auto.offset.reset", "none")) {
            consumer.assign(List.of(first(topic)));
            fails(NoOffsetForPartitionException.class, () -> { while (true) consumer.poll(Duration.ofMillis(100)); });
            for (long wrong : List.of(2L, 100L)) {
                consumer.seek(first(topic), wrong);
                fails(org.apache.kafka.clients.consumer.OffsetOutOfRangeException.class, () -> { while (true) consumer.poll(Duration.ofMillis(100)); });
            }
        }
        try (var consumer = consumer(topic)) {
            consumer.assign(List.of(first(topic)));
            consumer.seek(first(topic), 2);
            check(read(consumer, 15).get(0).offset() == 5, "reset to the earliest");
        }
    }

    public static class Counter implements ProducerInterceptor<String, String> {
        static int sent, acknowledged;
        @Override public ProducerRecord<String, String> onSend(ProducerRecord<String, String> record) {
            sent++;
            return new ProducerRecord<>(record.topic(), record.partition(), record.key(), record.value() + "!");
        }
        @Override public void onAcknowledgement(RecordMetadata metadata, Exception e) { if (e == null) acknowledged++; }
        @Override public void close() { }
        @Override public void configure(Map<String, ?> configs) { }
    }

    public static class Filter implements ConsumerInterceptor<String, String> {
        static Map<TopicPartition, OffsetAndMetadata> committed = Map.of();
        @Override public ConsumerRecords<String, String> onConsume(ConsumerRecords<String, String> records) {
            Map<TopicPartition, List<ConsumerRecord<String, String>>> kept = new HashMap<>();
            records.forEach(r -> { if (r.offset() % 2 == 0) kept.computeIfAbsent(new TopicPartition(r.topic(), r.partition()), k -> new ArrayList<>()).add(r); });
            return new ConsumerRecords<>(kept);
        }
        @Override public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) { committed = offsets; }
        @Override public void close() { }
        @Override public void configure(Map<String, ?> configs) { }
    }

    static void interceptors(String topic) throws Exception {
        create(topic, 1);
        try (var producer = producer("interceptor.classes", Counter.class.getName())) {
            for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(topic, "v" + i));
        }
        check(Counter.sent == 10 && Counter.acknowledged == 10, Counter.acknowledged);
        try (var consumer = consumer(topic, "interceptor.classes", Filter.class.getName())) {
            consumer.subscribe(List.of(topic));
            check(read(consumer, 5).get(1).value().equals("v2!"), "every other");
            consumer.commitSync();
            check(Filter.committed.get(first(topic)).offset() == 10, Filter.committed);
        }
    }

    static void maxPoll(String topic) throws Exception {
        create(topic, 2);
        produce(topic, 0, 5);
        try (var slow = consumer(topic, "max.poll.interval.ms", "1000"); var other = consumer(topic)) {
            List<String> lost = new ArrayList<>();
            slow.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) { lost.add("revoked"); }
                @Override public void onPartitionsLost(Collection<TopicPartition> partitions) { lost.add("lost"); }
                @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
            });
            read(slow, 5);
            until("the heartbeat thread to leave the group", () -> isEmpty(topic));
            fails(CommitFailedException.class, () -> { slow.commitSync(); return null; });
            other.subscribe(List.of(topic));
            until("the other to have both", () -> { other.poll(Duration.ofMillis(50)); return other.assignment().size() == 2; });
            until("a share for each", () -> {
                slow.poll(Duration.ofMillis(50));
                other.poll(Duration.ofMillis(50));
                return slow.assignment().size() == 1 && other.assignment().size() == 1;
            });
            check(lost.contains("lost"), lost);
        }
    }

    static boolean isEmpty(String group) {
        try {
            Thread.sleep(20);
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group).state() == ConsumerGroupState.EMPTY;
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    static void cooperative(String topic) throws Exception {
        create(topic, 6);
        String assignor = CooperativeStickyAssignor.class.getName();
        List<Integer> revoked = new ArrayList<>();
        var one = consumer(topic, "partition.assignment.strategy", assignor);
        var two = consumer(topic, "partition.assignment.strategy", assignor);
        var three = consumer(topic, "partition.assignment.strategy", assignor);
        one.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) { revoked.add(partitions.size()); }
            @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
        });
        untilShared(6, one);
        two.subscribe(List.of(topic));
        untilShared(3, one, two);
        three.subscribe(List.of(topic));
        untilShared(2, one, two, three);
        check(revoked.equals(List.of(3, 1)), revoked);
        two.close();
        untilShared(3, one, three);
        check(revoked.equals(List.of(3, 1)), revoked);
        one.close();
        three.close();
    }

    @SafeVarargs
    static void untilShared(int each, KafkaConsumer<String, String>... members) {
        until(each + " each", () -> {
            boolean done = true;
            for (var member : members) {
                member.poll(Duration.ofMillis(20));
                done &= member.assignment().size() == each;
            }
            return done;
        });
    }

    // -- transactions ------------------------------------------------------------------------------------

    static void offsetsOfATransaction(String topic) throws Exception {
        create(topic, 1);
        create(topic + "-out", 1);
        produce(topic, 0, 10);
        try (var consumer = consumer(topic); var producer = producer("transactional.id", topic)) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            read(consumer, 10);
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic + "-out", "v"));
            producer.sendOffsetsToTransaction(Map.of(first(topic), new OffsetAndMetadata(4)), consumer.groupMetadata());
            try (var reader = consumer("reader", "isolation.level", "read_committed")) {
                reader.assign(List.of(first(topic + "-out")));
                check(reader.poll(Duration.ofMillis(300)).isEmpty(), "it is open");
                producer.commitTransaction();
                read(reader, 1);
                check(reader.endOffsets(List.of(first(topic + "-out"))).get(first(topic + "-out")) == 2, "with the marker");
            }
            check(consumer.committed(Set.of(first(topic))).get(first(topic)).offset() == 4, "committed with it");
        }
    }

    static void offsetsOfAZombie(String topic) throws Exception {
        create(topic, 1);
        produce(topic, 0, 10);
        var consumer = consumer(topic);
        consumer.subscribe(List.of(topic));
        read(consumer, 10);
        ConsumerGroupMetadata old = consumer.groupMetadata();
        consumer.close();
        try (var next = consumer(topic); var producer = producer("transactional.id", topic)) {
            next.subscribe(List.of(topic));
            until("an assignment", () -> { next.poll(Duration.ofMillis(50)); return !next.assignment().isEmpty(); });
            producer.initTransactions();
            producer.beginTransaction();
            fails(CommitFailedException.class, () -> {
                producer.sendOffsetsToTransaction(Map.of(first(topic), new OffsetAndMetadata(4)), old);
                producer.commitTransaction();
                return null;
            });
            producer.abortTransaction();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(first(topic), new OffsetAndMetadata(5)), next.groupMetadata());
            producer.commitTransaction();
            check(next.committed(Set.of(first(topic))).get(first(topic)).offset() == 5, "of the member that is");
        }
    }

    static void fenced(String topic) throws Exception {
        create(topic, 1);
        try (var one = producer("transactional.id", topic); var two = producer("transactional.id", topic)) {
            one.initTransactions();
            one.beginTransaction();
            one.send(new ProducerRecord<>(topic, "one")).get();
            two.initTransactions();
            two.beginTransaction();
            two.send(new ProducerRecord<>(topic, "two")).get();
            fails(ProducerFencedException.class, () -> { one.commitTransaction(); return null; });
            two.commitTransaction();
        }
        try (var one = producer("transactional.id", topic); var two = producer("transactional.id", topic)) {
            one.initTransactions();
            one.beginTransaction();
            one.send(new ProducerRecord<>(topic, "one")).get();
            two.initTransactions();
            fails(InvalidProducerEpochException.class, () -> one.send(new ProducerRecord<>(topic, "one")).get());
            fails(InvalidProducerEpochException.class, () -> { one.commitTransaction(); return null; });
            fails(ProducerFencedException.class, () -> { one.abortTransaction(); one.beginTransaction(); return null; });
        }
        try (var reader = consumer(topic, "isolation.level", "read_committed")) {
            reader.assign(List.of(first(topic)));
            check(read(reader, 1).get(0).value().equals("two"), "only the second's");
        }
    }

    static void abortAndGoOn(String topic) throws Exception {
        create(topic, 2);
        try (var producer = producer("transactional.id", topic, "linger.ms", "5")) {
            producer.initTransactions();
            for (int round = 0; round < 40; round++) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(topic, i % 2, null, round + "-" + i));
                if (round % 3 == 0) producer.flush();
                if (round % 2 == 0) producer.abortTransaction();
                else producer.commitTransaction();
            }
        }
        try (var reader = consumer(topic, "isolation.level", "read_committed", "max.partition.fetch.bytes", "300")) {
            reader.assign(List.of(first(topic), new TopicPartition(topic, 1)));
            var found = read(reader, 200);
            check(found.stream().noneMatch(r -> Integer.parseInt(r.value().split("-")[0]) % 2 == 0), "an aborted one");
            check(found.stream().map(ConsumerRecord::value).distinct().count() == 200, "one twice");
            check(reader.poll(Duration.ofMillis(300)).isEmpty(), "no more");
        }
    }

    static void timedOut(String topic) throws Exception {
        create(topic, 1);
        try (var producer = producer("transactional.id", topic, "transaction.timeout.ms", "1500")) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "late")).get();
            until("its end", () -> {
                try {
                    Thread.sleep(50);
                    return admin.describeTransactions(List.of(topic)).description(topic).get().state() == TransactionState.COMPLETE_ABORT;
                } catch (Exception e) {
                    throw new AssertionError(e);
                }
            });
            fails(KafkaException.class, () -> { producer.commitTransaction(); return null; });
        }
        try (var producer = producer("transactional.id", topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "in time"));
            producer.commitTransaction();
        }
        try (var reader = consumer(topic, "isolation.level", "read_committed")) {
            reader.assign(List.of(first(topic)));
            check(read(reader, 1).get(0).value().equals("in time"), "only what was committed");
        }
    }

    // -- the rest ----------------------------------------------------------------------------------------

    static void throttled(String topic) throws Exception {
        create(topic, 1);
        ClientQuotaEntity who = new ClientQuotaEntity(Map.of("client-id", "slow"));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(who, List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", 20000.0), new ClientQuotaAlteration.Op("consumer_byte_rate", 20000.0))))).all().get();
        Thread.sleep(300);
        try (var producer = producer("client.id", "slow", "batch.size", "1000", "linger.ms", "0")) {
            for (int i = 0; i < 6; i++) producer.send(new ProducerRecord<>(topic, "x".repeat(10000))).get();
            check(metric(producer.metrics(), "produce-throttle-time-max") > 0, "produce");
        }
        try (var consumer = consumer(topic, "client.id", "slow", "max.partition.fetch.bytes", "20000")) {
            consumer.assign(List.of(first(topic)));
            read(consumer, 6);
            check(metric(consumer.metrics(), "fetch-throttle-time-max") > 0, "fetch");
        }
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(who, List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", null), new ClientQuotaAlteration.Op("consumer_byte_rate", null))))).all().get();
    }

    static double metric(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream().filter(e -> e.getKey().name().equals(name))
            .mapToDouble(e -> (Double) e.getValue().metricValue()).max().orElse(-1);
    }

    static void compacted(String topic) throws Exception {
        create(topic, 1, "cleanup.policy", "compact");
        try (var producer = producer()) {
            fails(InvalidRecordException.class, () -> producer.send(new ProducerRecord<>(topic, null, "v")).get());
            check(producer.send(new ProducerRecord<>(topic, "k", null)).get().offset() == 0, "a tombstone");
        }
    }

    static void metadata(String topic) throws Exception {
        try (var producer = producer("max.block.ms", "30000"); var consumer = consumer(topic, "allow.auto.create.topics", "false")) {
            check(consumer.partitionsFor(topic).isEmpty(), "nothing is made");
            check(producer.partitionsFor(topic).size() == 1, "made by whom produces");
            check(consumer.listTopics().containsKey(topic), "and listed");
            fails(InvalidTopicException.class, () -> producer.send(new ProducerRecord<>("no such/name", "v")).get());
            fails(InvalidTopicException.class, () -> consumer.partitionsFor("no such/name"));
        }
    }

    static void pattern(String topic) throws Exception {
        create(topic + "-1", 1);
        try (var consumer = consumer(topic, "metadata.max.age.ms", "300")) {
            consumer.subscribe(java.util.regex.Pattern.compile(topic + "-.*"));
            untilShared(1, consumer);
            create(topic + "-2", 1);
            untilShared(2, consumer);
            admin.deleteTopics(List.of(topic + "-1")).all().get();
            untilShared(1, consumer);
        }
    }

    static void deletedAndMadeAgain(String topic) throws Exception {
        create(topic, 1);
        try (var consumer = consumer(topic, "metadata.max.age.ms", "300"); var producer = producer("metadata.max.age.ms", "300")) {
            consumer.assign(List.of(first(topic)));
            for (int i = 0; i < 5; i++) producer.send(new ProducerRecord<>(topic, "before")).get();
            read(consumer, 5);
            admin.deleteTopics(List.of(topic)).all().get();
            create(topic, 1);
            check(producer.send(new ProducerRecord<>(topic, "after")).get().offset() == 0, "a new log");
            var found = read(consumer, 1);
            check(found.get(0).value().equals("after") && found.get(0).offset() == 0, found);
        }
    }

    static void restarts(String topic) throws Exception {
        create(topic, 2);
        Map<Integer, List<Integer>> found = Map.of(0, new ArrayList<>(), 1, new ArrayList<>());
        int count = 0;
        // On a busy machine a broker is away for seconds: a session must outlast that, or the member joins again.
        try (var consumer = consumer(topic, "group.instance.id", "one", "session.timeout.ms", "60000"); var producer = producer("linger.ms", "1")) {
            consumer.subscribe(List.of(topic));
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            while (System.in.available() == 0) {
                for (int i = 0; i < 5; i++, count++) sent.add(producer.send(new ProducerRecord<>(topic, count % 2, "k", "" + count)));
                boolean isNew = found.get(0).isEmpty();
                consumer.poll(Duration.ofMillis(5)).forEach(r -> found.get(r.partition()).add(Integer.parseInt(r.value())));
                if (isNew && !found.get(0).isEmpty()) System.out.println("begun");
            }
            producer.flush();
            for (var each : sent) each.get();
            int all = count;
            until("all", () -> {
                consumer.poll(Duration.ofMillis(50)).forEach(r -> found.get(r.partition()).add(Integer.parseInt(r.value())));
                return found.get(0).size() + found.get(1).size() >= all;
            });
            consumer.commitSync();
            check(consumer.groupMetadata().groupInstanceId().equals(Optional.of("one")), "it is the static member");
        }
        for (int partition = 0; partition < 2; partition++)
            for (int i = 0; i < found.get(partition).size(); i++)
                check(found.get(partition).get(i) == 2 * i + partition, "partition " + partition + ", number " + i);
        System.out.println("each once");
    }
}
