import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;

/** Confluent's own Java client, as Flink's connector ships it, against a registry: prints what it was told. */
public class RegistryClient {
    public static void main(String[] arguments) throws Exception {
        String first = "{\"type\":\"record\",\"name\":\"R\",\"namespace\":\"a.b\",\"fields\":[{\"name\":\"x\",\"type\":\"string\"}]}";
        String broken = first.replace("]}", ",{\"name\":\"y\",\"type\":\"int\"}]}");
        var client = new CachedSchemaRegistryClient(arguments[0], 100);
        int id = client.register("java-value", new AvroSchema(first));
        System.out.println("id " + id);
        System.out.println("version " + client.getVersion("java-value", new AvroSchema(first)));
        System.out.println("latest " + client.getLatestSchemaMetadata("java-value").getSchema());
        System.out.println("compatible " + client.testCompatibility("java-value", new AvroSchema(broken)));
        try {
            client.register("java-value", new AvroSchema(broken));
        } catch (RestClientException error) {
            System.out.println("refused " + error.getStatus() + " " + error.getErrorCode());
        }
        System.out.println("set " + client.updateCompatibility("java-value", "NONE"));
        System.out.println("second " + client.register("java-value", new AvroSchema(broken)));
        var other = new CachedSchemaRegistryClient(arguments[0], 100);
        System.out.println("same " + other.getSchemaById(id).canonicalString().equals(new AvroSchema(first).canonicalString()));
        try {
            other.getSchemaById(99999);
        } catch (RestClientException error) {
            System.out.println("unknown " + error.getStatus() + " " + error.getErrorCode());
        }
        System.out.println("subjects " + client.getAllSubjects());
        System.out.println("mode " + client.getMode());
        System.out.println("deleted " + client.deleteSubject("java-value") + client.deleteSubject(java.util.Map.of(), "java-value", true));
    }
}
