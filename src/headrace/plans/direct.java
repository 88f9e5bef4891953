// The body of a class that Spark's own compiler makes: runs the one partition of a planned query in the calling thread,
// as an executor of a local Spark would run its task, and writes the rows as one Arrow stream into a file.
public Object run(Object[] given) {
  org.apache.spark.rdd.RDD rows = (org.apache.spark.rdd.RDD) given[0];
  org.apache.spark.sql.types.StructType schema = (org.apache.spark.sql.types.StructType) given[1];
  java.util.Properties settings = (java.util.Properties) given[2];
  scala.collection.immutable.Map resources = (scala.collection.immutable.Map) given[3];
  String path = (String) given[4];
  org.apache.spark.SparkEnv env = org.apache.spark.SparkEnv.get();
  // No task of Spark's has a number below zero, and no two of these run in one thread. Spark's own number for a thread
  // without a task, under which the whole driver reads broadcasts, is below them, too: these begin after it.
  long id = org.apache.spark.storage.BlockInfo$.MODULE$.NON_TASK_WRITER() - 1L - Thread.currentThread().getId();
  org.apache.spark.memory.TaskMemoryManager memory =
      new org.apache.spark.memory.TaskMemoryManager(env.memoryManager(), id);
  org.apache.spark.TaskContextImpl context = new org.apache.spark.TaskContextImpl(
      0, 0, 0, id, 0, 1, memory, settings, env.metricsSystem(),
      org.apache.spark.executor.TaskMetrics$.MODULE$.empty(), 1, resources);
  env.blockManager().registerTask(id);
  org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
  scala.Option failure = scala.Option.empty();
  long size = 0L;
  try {
    scala.collection.Iterator batches =
        org.apache.spark.sql.execution.arrow.ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
            rows.iterator(rows.partitions()[0], context), schema, -1L, Long.MAX_VALUE, "UTC", true, false);
    java.io.FileOutputStream file = new java.io.FileOutputStream(path);
    try {
      while (batches.hasNext()) {
        byte[] batch = (byte[]) batches.next();
        file.write(batch);
        size += batch.length;
      }
    } finally {
      file.close();
    }
  } catch (Throwable error) {
    failure = scala.Option.apply(error);
    org.apache.spark.unsafe.Platform.throwException(error);
  } finally {
    try {
      context.markTaskCompleted(failure);
    } finally {
      memory.cleanUpAllAllocatedMemory();
      env.blockManager().releaseAllLocksForTask(id);
      env.memoryManager().releaseAllExecutionMemoryForTask(id);
      org.apache.spark.TaskContext$.MODULE$.unset();
    }
  }
  return Long.valueOf(size);
}
