/* How the JVM fares: milliseconds spent on collecting garbage so far; how full, in percent, the room for old objects was
   after the last collection; and how much of all that was held, in percent, that collection won back. */
public Object generate(Object[] none) {
  long spent = 0L;
  com.sun.management.GcInfo last = null;
  java.util.Iterator collectors = java.lang.management.ManagementFactory.getGarbageCollectorMXBeans().iterator();
  while (collectors.hasNext()) {
    Object collector = collectors.next();
    spent += ((java.lang.management.GarbageCollectorMXBean) collector).getCollectionTime();
    com.sun.management.GcInfo one = ((com.sun.management.GarbageCollectorMXBean) collector).getLastGcInfo();
    if (one != null && (last == null || one.getEndTime() > last.getEndTime())) {
      last = one;
    }
  }
  long full = 0L;
  long before = 0L;
  long after = 0L;
  java.util.Iterator pools = java.lang.management.ManagementFactory.getMemoryPoolMXBeans().iterator();
  while (last != null && pools.hasNext()) {
    java.lang.management.MemoryPoolMXBean pool = (java.lang.management.MemoryPoolMXBean) pools.next();
    if (pool.getType() == java.lang.management.MemoryType.HEAP) {
      String name = pool.getName();
      java.lang.management.MemoryUsage left = (java.lang.management.MemoryUsage) last.getMemoryUsageAfterGc().get(name);
      before += ((java.lang.management.MemoryUsage) last.getMemoryUsageBeforeGc().get(name)).getUsed();
      after += left.getUsed();
      if (left.getMax() > 0L && name.indexOf("Old") >= 0) {
        full = Math.max(full, 100L * left.getUsed() / left.getMax());
      }
    }
  }
  return spent + " " + full + " " + (before == 0L ? 100L : 100L * (before - after) / before);
}
