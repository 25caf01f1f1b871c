import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;

/**
 * A Kafka Streams application that counts words, over all time and by minute: repartition topics, state in RocksDB
 * and its changelogs. Runs until its input ends, or somebody kills it.
 */
public class Counting {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put("application.id", "counting");
        config.put("bootstrap.servers", arguments[0]);
        config.put("state.dir", arguments[1]);
        config.put("processing.guarantee", arguments[2]);
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("num.stream.threads", "2");
        config.put("commit.interval.ms", "100");
        config.put("statestore.cache.max.bytes", "0");
        config.put("topology.optimization", "none");
        config.put("replication.factor", "1");
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "3000");
        config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "300");
        config.put(StreamsConfig.consumerPrefix("max.poll.records"), "50");
        config.put(StreamsConfig.producerPrefix("linger.ms"), "5");

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> words = builder.stream("words");
        words.groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Materialized.as("counts"))
            .toStream().mapValues(String::valueOf).to("counts");
        words.groupBy((key, word) -> word, Grouped.as("by-word-and-minute"))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofDays(1)))
            .count(Materialized.as("minutes"))
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(String::valueOf).to("minutes");

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            System.out.flush();
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // its input ends when it is to stop
        }
        streams.close(Duration.ofSeconds(30));
    }
}
