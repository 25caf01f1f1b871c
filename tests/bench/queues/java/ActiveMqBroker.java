import java.io.File;
import java.net.URI;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;
import org.apache.activemq.store.kahadb.disk.journal.Journal;

/**
 * ActiveMQ's broker as its conf/activemq.xml has it, but for OpenWire alone and for a journal that does not wait for
 * the disk: {@code ActiveMqBroker FOLDER PORT}. Prints a line when it is ready, and runs until it is killed.
 */
public final class ActiveMqBroker {
    private static final int MEMORY_PERCENT = 70;
    private static final long STORE_BYTES = 100L << 30;
    private static final long TEMPORARY_BYTES = 50L << 30;

    public static void main(String[] arguments) throws Exception {
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(arguments[0], "kahadb"));
        store.setJournalDiskSyncStrategy(Journal.JournalDiskSyncStrategy.NEVER.name());
        BrokerService broker = new BrokerService();
        broker.setBrokerName("localhost");
        broker.setDataDirectory(arguments[0]);
        broker.setPersistenceAdapter(store);
        broker.getManagementContext().setCreateConnector(false);
        broker.getSystemUsage().getMemoryUsage().setPercentOfJvmHeap(MEMORY_PERCENT);
        broker.getSystemUsage().getStoreUsage().setLimit(STORE_BYTES);
        broker.getSystemUsage().getTempUsage().setLimit(TEMPORARY_BYTES);
        String limits = "maximumConnections=1000&wireFormat.maxFrameSize=104857600";
        broker.addConnector(new URI("tcp://127.0.0.1:" + arguments[1] + "?" + limits));
        broker.start();
        broker.waitUntilStarted();
        System.out.println("ready");
        broker.waitUntilStopped();
    }

    private ActiveMqBroker() {}
}
