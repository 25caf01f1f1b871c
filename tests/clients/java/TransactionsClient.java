// What the Java client's transactional producer, consumer and admin see of a broker; one line for each finding.
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class TransactionsClient {
    static Map<String, Object> config(String address, Object... pairs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", address);
        for (int i = 0; i < pairs.length; i += 2) config.put((String) pairs[i], pairs[i + 1]);
        return config;
    }

    static KafkaConsumer<String, String> reader(String address, String group) {
        return new KafkaConsumer<>(config(address, "group.id", group, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "isolation.level", "read_committed", "max.poll.records", "7"),
            new StringDeserializer(), new StringDeserializer());
    }

    static KafkaProducer<String, String> writer(String address, String id) {
        return new KafkaProducer<>(config(address, "transactional.id", id), new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] args) throws Exception {
        String address = args[0];
        int count = 60;
        Admin admin = Admin.create(config(address));
        admin.createTopics(List.of(new NewTopic("in", 2, (short) 1), new NewTopic("out", 2, (short) 1))).all().get();
        try (var plain = new KafkaProducer<>(config(address), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) plain.send(new ProducerRecord<>("in", i % 2, "k" + i, "" + i));
        }
        KafkaProducer<String, String> producer = writer(address, "java-worker");
        producer.initTransactions();
        int done = 0, attempts = 0;
        try (KafkaConsumer<String, String> consumer = reader(address, "java-copy")) {
            consumer.subscribe(List.of("in"));
            while (done < count) {
                var records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                attempts++;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (var record : records) {
                    producer.send(new ProducerRecord<>("out", record.partition(), record.key(), record.value()));
                    offsets.put(new TopicPartition("in", record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (attempts % 3 == 2) {
                    producer.abortTransaction();
                    var committed = consumer.committed(consumer.assignment());
                    for (var p : consumer.assignment()) {
                        var c = committed.get(p);
                        consumer.seek(p, c == null ? 0 : c.offset());
                    }
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
        }
        try (KafkaConsumer<String, String> consumer = reader(address, "java-check")) {
            consumer.subscribe(List.of("out"));
            TreeSet<Integer> seen = new TreeSet<>();
            int n = 0;
            long end = System.currentTimeMillis() + 20000;
            while (n < count && System.currentTimeMillis() < end)
                for (var record : consumer.poll(Duration.ofMillis(200))) { seen.add(Integer.parseInt(record.value())); n++; }
            for (var record : consumer.poll(Duration.ofMillis(300))) n++;
            System.out.println("copied " + n + " distinct " + seen.size() + " aborts " + (attempts > 3));
        }
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("out", 0, "k", "open")).get();
        for (var t : admin.listTransactions().all().get())
            System.out.println("listed " + t.transactionalId() + " " + t.state());
        var d = admin.describeTransactions(List.of("java-worker")).description("java-worker").get();
        System.out.println("described " + d.state() + " " + d.topicPartitions() + " " + d.transactionTimeoutMs() + " " + d.transactionStartTimeMs().isPresent());
        var tp = new TopicPartition("out", 0);
        for (var s : admin.describeProducers(List.of(tp)).partitionResult(tp).get().activeProducers())
            System.out.println("active " + s.currentTransactionStartOffset().isPresent() + " epoch " + s.producerEpoch());
        KafkaProducer<String, String> second = writer(address, "java-worker");
        second.initTransactions();
        second.beginTransaction();
        second.send(new ProducerRecord<>("out", 0, "k", "second"));
        second.commitTransaction();
        try {
            producer.commitTransaction();
            System.out.println("not fenced");
        } catch (ProducerFencedException | InvalidProducerEpochException e) {
            System.out.println("fenced " + e.getClass().getSimpleName());
        }
        producer.close(Duration.ZERO);
        second.close();
        admin.fenceProducers(List.of("java-worker")).all().get();
        System.out.println("fenced by admin");
        admin.close();
    }
}
