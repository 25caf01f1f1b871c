import java.util.HexFormat;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;

/** Flink's serializer of registered Avro: prints a value that it wrote, and what it reads of one that another wrote. */
public class RegistrySerializer {
    public static void main(String[] arguments) throws Exception {
        String url = arguments[0], subject = arguments[1];
        Schema schema = new Schema.Parser().parse(arguments[2]);
        var record = new GenericData.Record(schema);
        record.put("id", 7L);
        record.put("note", "of Java");
        byte[] written = ConfluentRegistryAvroSerializationSchema.forGeneric(subject, schema, url).serialize(record);
        System.out.println(HexFormat.of().formatHex(written));
        var reader = ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, url);
        System.out.println(reader.deserialize(HexFormat.of().parseHex(arguments[3])));
    }
}
