import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Calls everything that Java's Admin client has; each line printed is what one call found. */
public class AdminCalls {
    static Admin admin;

    interface Call { Object run() throws Exception; }

    static void show(String name, Call call) {
        Object found;
        try {
            found = call.run();
        } catch (ExecutionException e) {
            found = e.getCause().getClass().getSimpleName();
        } catch (Exception e) {
            found = e.getClass().getSimpleName();
        }
        System.out.println(name + ": " + found);
    }

    static Properties login(String bootstrap, String user, String password, String mechanism, boolean token) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("security.protocol", "SASL_PLAINTEXT");
        p.put("sasl.mechanism", mechanism);
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        p.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username=\"" + user
            + "\" password=\"" + password + "\"" + (token ? " tokenauth=\"true\"" : "") + ";");
        p.put("request.timeout.ms", "10000");
        p.put("default.api.timeout.ms", "15000");
        return p;
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        admin = Admin.create(login(bootstrap, "admin", "admin-secret", "PLAIN", false));
        topics();
        configs();
        groups(bootstrap);
        acls();
        quotas();
        users(bootstrap);
        replicas();
        cluster();
        admin.close();
    }

    static void topics() throws Exception {
        CreateTopicsResult created = admin.createTopics(List.of(
            new NewTopic("orders", 2, (short) 1).configs(Map.of("retention.ms", "1000")),
            new NewTopic("assigned", Map.of(0, List.of(1), 1, List.of(1)))));
        show("create", () -> created.numPartitions("orders").get() + " " + created.replicationFactor("orders").get()
            + " " + created.config("orders").get().get("retention.ms").value() + " "
            + created.numPartitions("assigned").get());
        show("create again", () -> admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get());
        show("create colliding", () -> admin.createTopics(List.of(
            new NewTopic("a.b", 1, (short) 1), new NewTopic("a_b", 1, (short) 1))).values().get("a_b").get());
        show("create misnamed", () -> admin.createTopics(List.of(new NewTopic("no/name", 1, (short) 1))).all().get());
        show("create without partitions", () -> admin.createTopics(List.of(new NewTopic("z", 0, (short) 1))).all().get());
        show("create replicated", () -> admin.createTopics(List.of(new NewTopic("z", 1, (short) 3))).all().get());
        show("create misconfigured", () -> admin.createTopics(
            List.of(new NewTopic("z", 1, (short) 1).configs(Map.of("retention.ms", "never")))).all().get());
        show("create with a gap", () -> admin.createTopics(
            List.of(new NewTopic("z", Map.of(0, List.of(1), 2, List.of(1))))).all().get());
        show("validate", () -> admin.createTopics(List.of(new NewTopic("z", 3, (short) 1)),
            new CreateTopicsOptions().validateOnly(true)).numPartitions("z").get());
        show("list", () -> new TreeSet<>(admin.listTopics().names().get()));
        TopicDescription orders = admin.describeTopics(List.of("orders")).allTopicNames().get().get("orders");
        show("describe", () -> orders.partitions().size() + " " + orders.partitions().get(0).leader().id());
        show("describe by id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(orders.topicId())))
            .allTopicIds().get().get(orders.topicId()).name());
        show("describe nothing", () -> admin.describeTopics(List.of("nowhere")).allTopicNames().get());
        show("operations", () -> new TreeSet<>(admin.describeTopics(List.of("orders"),
            new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .allTopicNames().get().get("orders").authorizedOperations()));
        show("partitions", () -> { admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(3))).all().get();
            return admin.describeTopics(List.of("orders")).allTopicNames().get().get("orders").partitions().size(); });
        show("fewer partitions", () -> admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(2))).all().get());
        show("delete nothing", () -> admin.deleteTopics(List.of("nowhere")).all().get());
        show("delete by id", () -> {
            Uuid id = admin.describeTopics(List.of("assigned")).allTopicNames().get().get("assigned").topicId();
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            return admin.listTopics().names().get().contains("assigned"); });
    }

    static void configs() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "orders");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        show("alter config", () -> { admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "-1"), AlterConfigOp.OpType.SET)))).all().get();
            return admin.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value(); });
        show("broker config", () -> {
            Config config = admin.describeConfigs(List.of(broker)).all().get().get(broker);
            return config.get("super.users").value() + " " + config.get("num.partitions").value(); });
        show("log dirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).size());
    }

    static void groups(String bootstrap) throws Exception {
        Properties p = login(bootstrap, "admin", "admin-secret", "PLAIN", false);
        try (Producer<byte[], byte[]> producer =
                new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>("orders", 0, null, new byte[10])).get();
        }
        TopicPartition first = new TopicPartition("orders", 0);
        show("offsets", () -> admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset());
        show("delete records", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4)))
            .all().get() == null ? admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset() : -1);
        show("alter group", () -> { admin.alterConsumerGroupOffsets("g", Map.of(first, new OffsetAndMetadata(7))).all().get();
            return admin.listConsumerGroupOffsets("g").partitionsToOffsetAndMetadata().get().get(first).offset(); });
        show("groups", () -> admin.listConsumerGroups().all().get().stream().map(ConsumerGroupListing::groupId).toList());
        show("group", () -> admin.describeConsumerGroups(List.of("g"), new DescribeConsumerGroupsOptions()
            .includeAuthorizedOperations(true)).all().get().get("g").authorizedOperations().size());
        show("delete offsets", () -> admin.deleteConsumerGroupOffsets("g", Set.of(first)).all().get());
        show("delete group", () -> admin.deleteConsumerGroups(List.of("g")).all().get());
        show("producers", () -> admin.describeProducers(List.of(first)).all().get().get(first).activeProducers().size());
        show("transactions", () -> admin.listTransactions().all().get().size());
    }

    static void acls() throws Exception {
        AclBinding read = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        AclBinding bad = new AclBinding(new ResourcePattern(ResourceType.CLUSTER, "another", PatternType.LITERAL),
            new AccessControlEntry("User:alice", "*", AclOperation.ALL, AclPermissionType.DENY));
        show("create acl", () -> admin.createAcls(List.of(read)).all().get());
        show("create bad acl", () -> admin.createAcls(List.of(bad)).all().get());
        show("acls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().equals(List.of(read)));
        show("delete acls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get().size());
    }

    static void quotas() throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(new TreeMap<>(Map.of("user", "alice", "client-id", "app")));
        show("alter quota", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1000.0))))).all().get());
        show("quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.contains(
            List.of(ClientQuotaFilterComponent.ofEntity("user", "alice")))).entities().get()
            .get(entity));
        show("bad quota", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("nonsense", 1.0))))).all().get());
    }

    static void users(String bootstrap) throws Exception {
        show("set password", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"),
            new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), "secret")
        )).all().get());
        show("users", () -> admin.describeUserScramCredentials().all().get().get("alice").credentialInfos().size());
        show("weak password", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("bob", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), "x")))
            .all().get());
        show("drop nobody", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256))).all().get());
        DelegationToken token;
        try (Admin alice = Admin.create(login(bootstrap, "alice", "secret", "SCRAM-SHA-512", false))) {
            show("alice", () -> alice.listTopics().names().get().contains("orders"));
            token = alice.createDelegationToken().delegationToken().get();
            show("token", () -> token.tokenInfo().owner().getName());
            show("tokens", () -> alice.describeDelegationToken().delegationTokens().get().size());
            show("renew", () -> alice.renewDelegationToken(token.hmac()).expiryTimestamp().get() > 0);
        }
        Properties byToken = login(bootstrap, token.tokenInfo().tokenId(), token.hmacAsBase64String(), "SCRAM-SHA-256", true);
        try (Admin tokened = Admin.create(byToken)) {
            show("by token", () -> tokened.listTopics().names().get().contains("orders"));
            show("token by token", () -> tokened.createDelegationToken().delegationToken().get());
        }
        show("expire another's", () -> admin.expireDelegationToken(token.hmac()).expiryTimestamp().get());
        try (Admin alice = Admin.create(login(bootstrap, "alice", "secret", "SCRAM-SHA-256", false))) {
            show("expire", () -> alice.expireDelegationToken(token.hmac(),
                new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get() > 0);
        }
        try (Admin tokened = Admin.create(byToken)) {
            show("by expired token", () -> tokened.listTopics().names().get());
        }
        show("drop password", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256))).all().get());
        try (Admin alice = Admin.create(login(bootstrap, "alice", "secret", "SCRAM-SHA-256", false))) {
            show("without password", () -> alice.listTopics().names().get());
        }
    }

    static void replicas() throws Exception {
        TopicPartition first = new TopicPartition("orders", 0);
        show("elect", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions().get().get(first)
            .get().getClass().getSimpleName());
        show("elect all", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions().get());
        show("reassign as is", () -> admin.alterPartitionReassignments(Map.of(first,
            Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        show("reassign away", () -> admin.alterPartitionReassignments(Map.of(first,
            Optional.of(new NewPartitionReassignment(List.of(2))))).all().get());
        show("cancel", () -> admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all().get());
        show("reassignments", () -> admin.listPartitionReassignments().reassignments().get());
    }

    static void cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        show("cluster", () -> cluster.nodes().get().size() + " " + cluster.controller().get().id() + " "
            + cluster.authorizedOperations().get().size());
        show("features", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures());
        show("update feature", () -> admin.updateFeatures(Map.of("metadata.version",
            new FeatureUpdate((short) 5, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
    }
}
