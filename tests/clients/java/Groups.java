import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/** Groups as the Java client has them. Prints one line for each scenario that came out as Kafka documents it. */
public class Groups {
    static final String[] ASSIGNORS = {"Range", "RoundRobin", "Sticky", "CooperativeSticky"};
    static final int PARTITIONS = 6;
    static String bootstrap;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        List<Callable<String>> scenarios = new ArrayList<>();
        for (String assignor : ASSIGNORS) {
            scenarios.add(() -> sharesAndLosesAMember(assignor));
        }
        scenarios.add(Groups::staticMemberComesBack);
        scenarios.add(Groups::staticMemberIsFenced);
        scenarios.add(Groups::operatorRemovesAStaticMember);
        scenarios.add(Groups::operatorAsksAndDeletes);
        // All at once: each has a topic and a group of its own, and waits more than it works.
        ExecutorService threads = Executors.newCachedThreadPool();
        try {
            List<Future<String>> outcomes = threads.invokeAll(scenarios);
            for (Future<String> outcome : outcomes) {
                System.out.println(outcome.get());
            }
        } finally {
            threads.shutdown();
        }
        admin.close();
    }

    /** A consumer, what it was given and what was taken from it. */
    static class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final List<Set<TopicPartition>> assigned = new ArrayList<>();
        final List<Set<TopicPartition>> revoked = new ArrayList<>();
        int records;

        Member(String group, String topic, String assignor, String instance) {
            Map<String, Object> config = new HashMap<>();
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", group);
            config.put("auto.offset.reset", "earliest");
            config.put("enable.auto.commit", "false");
            config.put("session.timeout.ms", "30000");
            config.put("heartbeat.interval.ms", "100");
            config.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + assignor + "Assignor");
            if (instance != null) {
                config.put("group.instance.id", instance);
            }
            consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic), this);
        }

        void poll() {
            records += consumer.poll(Duration.ofMillis(20)).count();
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assigned.add(new HashSet<>(partitions));
        }

        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked.add(new HashSet<>(partitions));
        }
    }

    static void until(String what, BooleanSupplier condition, Member... members) {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "not within 60 s: " + what);
            for (Member member : members) {
                member.poll();
            }
        }
    }

    static void untilShared(int each, Member... members) {
        until(each + " partitions each", () -> {
            for (Member member : members) {
                if (member.consumer.assignment().size() != each) {
                    return false;
                }
            }
            return true;
        }, members);
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static void refused(Class<? extends Exception> expected, KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
        } catch (ExecutionException error) {
            check(expected.isInstance(error.getCause()), expected + " was expected, not " + error.getCause());
            return;
        }
        throw new AssertionError(expected + " was expected");
    }

    static String topic(String name) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 1))).all().get();
        return name;
    }

    static void produce(String topic, int count) throws Exception {
        try (Producer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, "" + number));
            }
        }
    }

    static String sharesAndLosesAMember(String assignor) throws Exception {
        String topic = topic("shared-" + assignor);
        Member one = new Member(topic, topic, assignor, null);
        untilShared(6, one);
        Member two = new Member(topic, topic, assignor, null);
        untilShared(3, one, two);
        produce(topic, 60);
        until("60 records", () -> one.records + two.records >= 60, one, two);
        if (assignor.equals("CooperativeSticky")) {
            check(one.revoked.equals(List.of(two.consumer.assignment())), "revoked " + one.revoked);
        } else {
            check(one.revoked.get(0).size() == 6, "revoked " + one.revoked);
        }
        one.consumer.commitSync();
        two.consumer.commitSync();
        ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
        check(group.state() == ConsumerGroupState.STABLE && group.members().size() == 2, "" + group);
        check(group.coordinator().id() == 1 && group.type() == GroupType.CLASSIC, "" + group);
        Map<TopicPartition, OffsetAndMetadata> offsets =
            admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
        check(offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum() == 60, "" + offsets);
        two.consumer.close();
        untilShared(6, one);
        int generation = one.consumer.groupMetadata().generationId();
        check(generation >= 3, "generation " + generation);
        one.consumer.close();
        return "shares-" + assignor;
    }

    static String staticMemberComesBack() throws Exception {
        String topic = topic("static");
        Member one = new Member(topic, topic, "Range", "a");
        Member two = new Member(topic, topic, "Range", "b");
        untilShared(3, one, two);
        Set<TopicPartition> had = two.consumer.assignment();
        int generation = one.consumer.groupMetadata().generationId();
        int rebalances = one.assigned.size();
        Set<TopicPartition> hadOne = one.consumer.assignment();
        two.consumer.close();
        Member back = new Member(topic, topic, "Range", "b");
        untilShared(3, one, back);
        check(back.consumer.assignment().equals(had), "it came back to " + back.consumer.assignment());
        one.consumer.close(); // the leader, which is told not to assign when it is back (KIP-814)
        Member leader = new Member(topic, topic, "Range", "a");
        untilShared(3, leader, back);
        check(leader.consumer.assignment().equals(hadOne), "" + leader.consumer.assignment());
        check(leader.consumer.groupMetadata().generationId() == generation, "there was a rebalance");
        check(back.assigned.size() == 1 && one.assigned.size() == rebalances, "there was a rebalance");
        leader.consumer.close();
        back.consumer.close();
        return "static-comes-back";
    }

    static String staticMemberIsFenced() throws Exception {
        String topic = topic("fenced");
        Member first = new Member(topic, topic, "Range", "a");
        untilShared(6, first);
        Member second = new Member(topic, topic, "Range", "a");
        untilShared(6, second);
        try {
            until("the first to be fenced", () -> false, first);
        } catch (FencedInstanceIdException expected) {
            second.consumer.close();
            first.consumer.close();
            return "static-is-fenced";
        }
        throw new AssertionError("the first was not fenced");
    }

    static String operatorRemovesAStaticMember() throws Exception {
        String topic = topic("removed");
        Member stays = new Member(topic, topic, "Range", "a");
        Member goes = new Member(topic, topic, "Range", "b");
        untilShared(3, stays, goes);
        goes.consumer.close();
        admin.removeMembersFromConsumerGroup(topic,
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("b")))).all().get();
        untilShared(6, stays);
        refused(UnknownMemberIdException.class, admin.removeMembersFromConsumerGroup(topic,
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("b")))).all());
        stays.consumer.close();
        return "operator-removes";
    }

    static String operatorAsksAndDeletes() throws Exception {
        String topic = topic("operated");
        TopicPartition partition = new TopicPartition(topic, 0);
        refused(GroupIdNotFoundException.class, admin.deleteConsumerGroups(List.of("operated")).all());
        Member one = new Member(topic, topic, "Range", null);
        untilShared(6, one);
        one.consumer.commitSync(Map.of(partition, new OffsetAndMetadata(0, "note")));
        refused(GroupNotEmptyException.class, admin.deleteConsumerGroups(List.of(topic)).all());
        refused(UnknownMemberIdException.class,
            admin.alterConsumerGroupOffsets(topic, Map.of(partition, new OffsetAndMetadata(1))).all());
        refused(GroupSubscribedToTopicException.class,
            admin.deleteConsumerGroupOffsets(topic, Set.of(partition)).all());
        check(listed(ConsumerGroupState.STABLE).contains(topic), "it is stable");
        one.consumer.close();
        check(listed(ConsumerGroupState.EMPTY).contains(topic), "it is empty");
        check(!listed(ConsumerGroupState.STABLE).contains(topic), "it is empty");
        admin.alterConsumerGroupOffsets(topic, Map.of(partition, new OffsetAndMetadata(5))).all().get();
        admin.deleteConsumerGroupOffsets(topic, Set.of(partition)).all().get();
        check(admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().isEmpty(), "offsets");
        admin.deleteConsumerGroups(List.of(topic)).all().get();
        return "operator-deletes";
    }

    static Set<String> listed(ConsumerGroupState state) throws Exception {
        Set<String> found = new HashSet<>();
        ListConsumerGroupsOptions options =
            new ListConsumerGroupsOptions().inStates(Set.of(state)).withTypes(Set.of(GroupType.CLASSIC));
        admin.listConsumerGroups(options).all().get().forEach(group -> found.add(group.groupId()));
        return found;
    }
}
