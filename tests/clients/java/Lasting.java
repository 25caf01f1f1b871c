import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member that prints what happens to it, and commits after each record, until its input ends. */
public class Lasting {
    public static void main(String[] arguments) throws Exception {
        AtomicBoolean isOver = new AtomicBoolean();
        Thread waiter = new Thread(() -> {
            try {
                new BufferedReader(new InputStreamReader(System.in)).readLine();
            } catch (java.io.IOException ended) {
                // as good as a line
            }
            isOver.set(true);
        });
        waiter.setDaemon(true);
        waiter.start();
        Map<String, Object> config = Map.of(
            "bootstrap.servers", arguments[0], "group.id", arguments[1], "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "session.timeout.ms", "10000", "heartbeat.interval.ms", "100",
            "reconnect.backoff.max.ms", "200", "default.api.timeout.ms", "30000");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]), new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    say("assigned " + partitions.size());
                }

                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    say("revoked " + partitions.size());
                }

                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    say("lost " + partitions.size());
                }
            });
            while (!isOver.get()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    say("record " + record.value());
                    consumer.commitSync();
                }
            }
        }
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
