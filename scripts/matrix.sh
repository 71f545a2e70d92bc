#!/bin/sh
# Makes .matrix/<version> for each "version:python" given, with that PySpark and else the locked versions, and
# runs the Spark tests there; then a checkpoint goes from each version to the next. One line a version at the end.
# usage: scripts/matrix.sh 4.0.1:3.11 4.1.1:3.12 ...
set -u
cd "$(dirname "$0")/.."
mkdir -p .matrix
JAVA_HOME="$(scripts/java.sh)" && export JAVA_HOME
# What is locked stays so, but for Spark itself and the bridge that each version of it pins.
sed -n 's/^\([a-z0-9][a-z0-9._-]*==[^ ]*\).*/\1/p' requirements/lock.txt | grep -v -e '^pyspark==' -e '^py4j==' \
	> .matrix/constraints.txt
# The tests see the environments by this, from the oldest Spark to the newest.
STREAMJOIN_MATRIX="$PWD/.matrix" && export STREAMJOIN_MATRIX
failed=""
summary=""

for each in "$@"; do
	version="${each%%:*}" wanted="${each##*:}"
	home=".matrix/$version"
	python="$(command -v "python$wanted" || command -v python3)"
	for found in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$wanted".*/bin/python; do
		[ -x "$found" ] && python="$found"
	done
	"$python" -c 'import sys' 2>/dev/null || python=python3
	if [ ! -f "$home/.ready" ]; then
		echo "PySpark $version on $("$python" --version): installing (450 MB) ..."
		scripts/venv.sh "$python" "$home" &&
			"$home/bin/python" -m pip --quiet --disable-pip-version-check install setuptools wheel &&
			"$home/bin/python" -m pip --quiet --disable-pip-version-check install \
				-c .matrix/constraints.txt "pyspark==$version" -e '.[dev]' &&
			touch "$home/.ready" || { failed="$failed $version"; summary="$summary
$version: not installed"; continue; }
	fi
	echo "PySpark $version ..."
	PYSPARK_PYTHON="$PWD/$home/bin/python" && export PYSPARK_PYTHON
	PYSPARK_DRIVER_PYTHON="$PYSPARK_PYTHON" && export PYSPARK_DRIVER_PYTHON
	"$home/bin/python" -m pytest -q -p no:cacheprovider -m "spark and not systems and not slow" tests ||
		failed="$failed $version"
	"$home/bin/python" -m pytest -q -p no:cacheprovider tests/spark/test_connect.py || failed="$failed $version-connect"
	summary="$summary
$version on $("$home/bin/python" --version)"
done
"$home/bin/python" -m pytest -q -p no:cacheprovider tests/spark/test_upgrade.py || failed="$failed upgrade"

echo "Ran:$summary"
[ -z "$failed" ] || { echo "Failed:$failed"; exit 1; }
