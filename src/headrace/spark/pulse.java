/* How the JVM fares: milliseconds spent on collecting garbage so far, and how full, in percent, the fullest part of the
   heap was after its last collection. */
public Object generate(Object[] none) {
  long spent = 0L;
  java.util.Iterator collectors = java.lang.management.ManagementFactory.getGarbageCollectorMXBeans().iterator();
  while (collectors.hasNext()) {
    spent += ((java.lang.management.GarbageCollectorMXBean) collectors.next()).getCollectionTime();
  }
  long full = 0L;
  java.util.Iterator pools = java.lang.management.ManagementFactory.getMemoryPoolMXBeans().iterator();
  while (pools.hasNext()) {
    java.lang.management.MemoryPoolMXBean pool = (java.lang.management.MemoryPoolMXBean) pools.next();
    java.lang.management.MemoryUsage left = pool.getCollectionUsage();
    if (left != null && left.getMax() > 0L && pool.getName().indexOf("Old") >= 0) {
      full = Math.max(full, 100L * left.getUsed() / left.getMax());
    }
  }
  return spent + " " + full;
}
