#!/usr/bin/env bash
# Prints the JAVA_HOME of a Java 17 or newer that Spark can use; installs one if none is there.
# Looks at $JAVA_HOME, then at `java` on PATH, then into Debian's folder. All talk goes to stderr.
set -euo pipefail

# The home of one `java` program, or failure. Spark asks for the module jdk.incubator.vector, which
# cut-down runtimes lack, so it is asked for here too.
home_of() {
  local java=$1 settings version
  settings=$("$java" --add-modules jdk.incubator.vector -XshowSettings:properties -version 2>&1) || return 1
  version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
  case $version in '' | *[!0-9]*) return 1 ;; esac # Java 8 and older call themselves 1.x
  [ "$version" -ge 17 ] || return 1
  sed -n 's/^ *java\.home = //p' <<<"$settings"
}

find_java() {
  local java
  # 17 first: it is what the tests run on.
  for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
    /usr/lib/jvm/java-17-*/bin/java /usr/lib/jvm/default-java/bin/java /usr/lib/jvm/*/bin/java; do
    [ -x "$java" ] && home_of "$java" && return
  done
  return 1
}

find_java && exit

echo "No Java 17 or newer found: installing Debian's (about 200 MB on disk) ..." >&2
here=$(dirname "$0")
if "$here/apt.sh" openjdk-17-jre-headless 2>/dev/null || "$here/apt.sh" default-jre-headless; then
  find_java && exit
fi
echo "Spark needs Java 17 or newer: install openjdk-17-jre-headless (or any JDK 17+), or set JAVA_HOME to one, and run this again." >&2
exit 1
