import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.source.TransactionContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/* Runs one connector of Debezium without Kafka: records go out on standard output, and what is durable by now comes in
   on standard input, whose end is the end of this process. It is compiled by Janino when it starts, which knows neither
   lambdas nor inferred types. process.py is the other side of it. */
public class Engine {
  static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.USE_LONG_FOR_INTS);
  static DataOutputStream out;

  public static void main(String[] none) throws Exception {
    out = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
    // Whoever prints something must not do so between records.
    System.setOut(System.err);
    DataInputStream in = new DataInputStream(System.in);
    Thread.currentThread().setContextClassLoader(SourceTask.class.getClassLoader());
    try {
      Map told = (Map) JSON.readValue(read(in), Map.class);
      String verb = (String) told.get("verb");
      if ("run".equals(verb)) {
        new Engine(told).run(in);
      } else {
        statements((Map) told.get("database"), (List) told.get("statements"));
        send('D', new byte[0]);
      }
    } catch (Throwable error) {
      send('E', JSON.writeValueAsBytes(causes(error)));
    }
    // Threads of drivers may still run.
    Runtime.getRuntime().halt(0);
  }

  final SourceTask task;
  final Map config;
  final Map database;
  // What asks for the tables that there are.
  final String tables;
  // What is durable: where the connector begins, and what it may confirm.
  volatile Map offset;
  final File historyFile;
  final JsonConverter converter = new JsonConverter();
  final IdentityHashMap schemas = new IdentityHashMap();
  volatile Map partition;
  long historyLength = -1L;

  Engine(Map told) throws Exception {
    this.config = (Map) told.get("config");
    this.database = (Map) told.get("database");
    this.tables = (String) told.get("tables");
    this.offset = (Map) told.get("offset");
    this.task = (SourceTask) Class.forName((String) told.get("task")).getDeclaredConstructor(new Class[0])
        .newInstance(new Object[0]);
    String file = (String) this.config.get("schema.history.internal.file.filename");
    this.historyFile = file == null ? null : new File(file);
    Map converting = new HashMap();
    converting.put("schemas.enable", "false");
    converting.put("converter.type", "value");
    this.converter.configure(converting);
    Object before = told.get("before");
    if (before != null) statements(this.database, (List) before);
  }

  void run(final DataInputStream in) throws Exception {
    final Engine self = this;
    final Map config = this.config;
    sendTables();
    // The other side says whether to go on: to start a connector changes its database.
    read(in);
    final OffsetStorageReader reader = new OffsetStorageReader() {
      public Map offset(Map partition) { return self.offset; }
      public Map offsets(Collection partitions) {
        Map found = new HashMap();
        Iterator each = partitions.iterator();
        while (each.hasNext()) found.put(each.next(), self.offset);
        return found;
      }
    };
    this.task.initialize(new SourceTaskContext() {
      public Map configs() { return config; }
      public OffsetStorageReader offsetStorageReader() { return reader; }
      public TransactionContext transactionContext() { return null; }
      public PluginMetrics pluginMetrics() { return null; }
    });
    this.task.start(this.config);
    send('B', new byte[0]);
    Thread listening = new Thread("headrace-listening") {
      public void run() { self.listen(in); }
    };
    listening.setDaemon(true);
    listening.start();
    while (true) {
      List records = this.task.poll();
      if (records != null && !records.isEmpty()) sendRecords(records);
    }
  }

  /* Hears what is durable, and what is asked for, until the other side has gone. */
  void listen(DataInputStream in) {
    try {
      while (true) {
        Map told = (Map) JSON.readValue(read(in), Map.class);
        Map confirmed = (Map) told.get("confirm");
        Map signal = (Map) told.get("signal");
        if (confirmed != null && this.partition != null) {
          // Some connectors confirm what they are told here, others what the store of offsets has.
          this.offset = confirmed;
          this.task.commitRecord(new SourceRecord(this.partition, confirmed, "", null, null), null);
          ((io.debezium.connector.common.BaseSourceTask) this.task).performCommit();
        }
        if (signal != null) signal(signal);
        if (told.containsKey("look")) {
          // Of a database that does not answer, the connector tells.
          try { sendTables(); } catch (java.sql.SQLException ignored) { }
        }
      }
    } catch (java.io.IOException ended) {
      // Let go of the database in good order; whoever waits for longer than that kills this process.
      try { this.task.stop(); } catch (Throwable ignored) { }
      Runtime.getRuntime().halt(0);
    } catch (Throwable error) {
      try { send('E', JSON.writeValueAsBytes(causes(error))); } catch (Throwable ignored) { }
      Runtime.getRuntime().halt(1);
    }
  }

  void signal(Map signal) throws Exception {
    Object writer = ((io.debezium.connector.common.BaseSourceTask) this.task).getAvailableSignalChannelWriter().get();
    ((io.debezium.pipeline.signal.channels.process.SignalChannelWriter) writer).signal(
        new io.debezium.pipeline.signal.SignalRecord(
            (String) signal.get("id"), (String) signal.get("type"), JSON.writeValueAsString(signal.get("data")),
            Collections.EMPTY_MAP));
  }

  void sendRecords(List records) throws Exception {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(65536);
    DataOutputStream frame = new DataOutputStream(bytes);
    if (this.partition == null) this.partition = ((SourceRecord) records.get(0)).sourcePartition();
    // Whatever changed tables was written down before the records that follow on it were handed over.
    if (this.historyFile != null && this.historyFile.length() != this.historyLength) {
      byte[] history = Files.readAllBytes(this.historyFile.toPath());
      this.historyLength = (long) history.length;
      frame.writeByte('H');
      field(frame, history);
    }
    Map lastOffset = null;
    byte[] offset = null;
    for (int i = 0; i < records.size(); i++) {
      SourceRecord record = (SourceRecord) records.get(i);
      int keySchema = schema(frame, record.keySchema());
      int valueSchema = schema(frame, record.valueSchema());
      if (lastOffset == null || !lastOffset.equals(record.sourceOffset())) {
        lastOffset = record.sourceOffset();
        offset = JSON.writeValueAsBytes(lastOffset);
      }
      frame.writeByte('R');
      field(frame, record.topic().getBytes(StandardCharsets.UTF_8));
      frame.writeInt(keySchema);
      field(frame, this.converter.fromConnectData(record.topic(), record.keySchema(), record.key()));
      frame.writeInt(valueSchema);
      field(frame, this.converter.fromConnectData(record.topic(), record.valueSchema(), record.value()));
      field(frame, offset);
    }
    frame.flush();
    send('R', bytes.toByteArray());
  }

  /* Sends which tables there are, each as the texts of its columns. */
  void sendTables() throws Exception {
    List rows = new ArrayList();
    java.sql.Connection connection = connect(this.database);
    try {
      java.sql.Statement statement = connection.createStatement();
      statement.setQueryTimeout(10);
      java.sql.ResultSet found = statement.executeQuery(this.tables);
      int columns = found.getMetaData().getColumnCount();
      while (found.next()) {
        List row = new ArrayList();
        for (int i = 1; i <= columns; i++) row.add(found.getString(i));
        rows.add(row);
      }
    } finally {
      connection.close();
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream frame = new DataOutputStream(bytes);
    frame.writeByte('T');
    field(frame, JSON.writeValueAsBytes(rows));
    frame.flush();
    send('R', bytes.toByteArray());
  }

  /* The number of a schema, which is told once: written beside each record it would be most of it. */
  int schema(DataOutputStream frame, Schema schema) throws Exception {
    if (schema == null) return -1;
    Object known = this.schemas.get(schema);
    if (known != null) return ((Integer) known).intValue();
    int number = this.schemas.size();
    this.schemas.put(schema, Integer.valueOf(number));
    frame.writeByte('S');
    frame.writeInt(number);
    field(frame, JSON.writeValueAsBytes(this.converter.asJsonSchema(schema)));
    return number;
  }

  static void field(DataOutputStream frame, byte[] content) throws Exception {
    frame.writeInt(content == null ? -1 : content.length);
    if (content != null) frame.write(content);
  }

  static byte[] read(DataInputStream in) throws Exception {
    byte[] content = new byte[in.readInt()];
    in.readFully(content);
    return content;
  }

  static void send(char kind, byte[] content) throws Exception {
    synchronized (out) {
      out.writeByte(kind);
      out.writeInt(content.length);
      out.write(content);
      out.flush();
    }
  }

  /* Runs statements; one that finds no rows where some must be is an error that it brings itself. */
  static void statements(Map database, List statements) throws Exception {
    java.sql.Connection connection = connect(database);
    try {
      for (int i = 0; i < statements.size(); i++) {
        java.sql.Statement statement = connection.createStatement();
        try { statement.execute((String) statements.get(i)); } finally { statement.close(); }
      }
    } finally {
      connection.close();
    }
  }

  static java.sql.Connection connect(Map database) throws Exception {
    java.util.Properties properties = new java.util.Properties();
    properties.putAll((Map) database.get("properties"));
    return java.sql.DriverManager.getConnection((String) database.get("url"), properties);
  }

  static List causes(Throwable error) {
    List told = new ArrayList();
    for (Throwable one = error; one != null && told.size() < 12; one = one.getCause()) {
      Map cause = new LinkedHashMap();
      List classes = new ArrayList();
      for (Class type = one.getClass(); type != null; type = type.getSuperclass()) classes.add(type.getName());
      cause.put("classes", classes);
      cause.put("message", one.getMessage() == null ? one.toString() + " " + (one.getStackTrace().length > 0 ? one.getStackTrace()[0].toString() : "") : one.getMessage());
      if (one instanceof java.sql.SQLException) cause.put("state", ((java.sql.SQLException) one).getSQLState());
      told.add(cause);
    }
    return told;
  }
}
