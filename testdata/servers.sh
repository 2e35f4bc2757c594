#!/usr/bin/env bash
# servers.sh: the three real servers that relay is tested against.
#
#   up                             start MySQL, MariaDB and RabbitMQ, wait until all answer, write .dev/env
#   down                           stop what up started; the data stays
#   mysqld DIR PORT [OPTION...]    one more MySQL server, in the foreground
#   mariadbd DIR PORT [OPTION...]  one more MariaDB server, in the foreground
#   rabbitmq DIR PORT [TLS-PORT]   one more RabbitMQ broker, in the foreground
#   rabbitmqctl DIR ARG...         rabbitmqctl against the broker of DIR (up's own: .dev/rabbitmq)
#   mysql ARG..., mariadb ARG...   the client, as root, on the server that up started
#   mysqlbinlog DIR ARG...         mysqlbinlog, in the directory DIR; it sees nothing else of this host
#   tool NAME ARG...               a program that tests need: chromium-headless-shell, promtool, systemd-analyze,
#                                  zsh, fish, mandoc …; it sees this clone and /tmp under their own names
#
# The servers come from, in this order: RELAY_TEST_MYSQL_DSN with RELAY_TEST_AMQP_URL, and
# RELAY_TEST_MARIADB_DSN, in the environment (there already, only checked); Docker Compose, where an
# engine answers; else, as root on Debian, root filesystems in which they run by chroot, each in a mount
# namespace of its own: .dev/root (unstable: MySQL, RabbitMQ) and .dev/mariadb-root (stable: MariaDB).
# The tools come from .dev/tools-root (stable), and elsewhere than on Debian from the PATH.
#
# A foreground server keeps everything under DIR (absolute; it becomes the server's own). Its process id
# is in DIR/pid. SIGTERM to this script stops it cleanly; the script ends when the server ends.
# Without Docker, where a mount namespace is permitted, the script becomes the server: one process.
#
# A broker has RabbitMQ's management API on the port of 127.0.0.1 that MANAGEMENT_PORT in the environment says.
#
# A MySQL server with --binlog-encryption=ON among its options gets a keyring in a file beside its data,
# and a MariaDB with --encrypt-binlog=ON a file of keys.
# A server sees DIR/tls as /srv/tls. At TLS-PORT a broker has the certificate /srv/tls/server.pem with the
# key server-key.pem, and lets in only who shows one of an authority in ca.pem.
#
# Every step can be killed at any moment: what takes time is built beside its name and then renamed.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
self=$top/testdata/servers.sh
dev=$top/.dev
root=$dev/root
mariadb_root=$dev/mariadb-root
tools_root=$dev/tools-root
tools=bash-completion,chromium-headless-shell,fish,mandoc,prometheus,systemd,zsh
password=relay
mysqld_options=(--server-id=1 --log-bin=binlog --gtid-mode=ON --enforce-gtid-consistency=ON
  --binlog-expire-logs-seconds=86400 --max-connections=500 --innodb-buffer-pool-size=128M
  --default-time-zone=+00:00 --mysqlx=OFF)
mariadbd_options=(--server-id=1 --log-bin=binlog --gtid-strict-mode=ON --binlog-format=ROW
  --binlog-row-metadata=FULL --log-slave-updates=ON --sync-binlog=1 --binlog-expire-logs-seconds=86400
  --max-connections=500 --innodb-buffer-pool-size=128M --default-time-zone=+00:00)

say() { printf 'servers: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

locked=
# lock lets one up, down or build work in this clone at a time. Descriptor 9 is inherited on purpose:
# a build that outlives its script still holds the lock.
lock() {
  mkdir -p "$dev"
  exec 9>"$dev/lock"
  flock -n 9 || { say "waiting for another run in $dev"; flock 9; }
  locked=yes
}

engine() { [[ -n $(timeout 20 docker info -f '{{.ServerVersion}}' 2>/dev/null) ]] && docker compose version &>/dev/null; }

# ---- processes and ports

# start_time PID: when a process began, in ticks since boot; fails for a dead one or a zombie.
start_time() {
  local stat field
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  read -ra field <<<"${stat##*) }"
  [[ ${field[0]} != Z ]] && echo "${field[19]}"
}

# alive DIR: the process recorded in DIR is that process still, and not another with its number.
alive() { [[ -e $1/pid && -e $1/started ]] && [[ $(start_time "$(<"$1/pid")") == "$(<"$1/started")" ]]; }

# claimed DIR: a server runs or starts in DIR; it holds DIR/lock for as long as it lives.
claimed() { [[ -e $1/lock ]] && ! flock -sn "$1/lock" true; }

record() { # PID DIR
  start_time "$1" >"$2/started"
  echo "$1" >"$2/pid"
}

reachable() { # HOST PORT
  # shellcheck disable=SC2016 # expanded inside
  timeout 5 "$BASH" -c 'exec 3<>"/dev/tcp/$1/$2"' _ "$1" "$2" 2>/dev/null
}

# free_port: one below the range from which the kernel takes client ports.
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); do
    reachable 127.0.0.1 "$port" || { echo "$port"; return; }
  done
}

# kept_port NAME: the port that NAME had the last time, unless somebody else has it now.
kept_port() {
  local file=$dev/$1.port
  if [[ ! -s $file ]] || reachable 127.0.0.1 "$(<"$file")"; then
    free_port >"$file.new"
    mv "$file.new" "$file"
  fi
  cat "$file"
}

# ---- the root filesystem

able() { engine || { command -v apt-get >/dev/null && ((EUID == 0)); }; }

need_root() {
  local other='start Docker, or set RELAY_TEST_MYSQL_DSN, RELAY_TEST_MARIADB_DSN and RELAY_TEST_AMQP_URL'
  command -v apt-get >/dev/null || die "no Docker engine answers and this is not Debian: $other"
  ((EUID == 0)) || die "no Docker engine answers and chroot needs root: sudo make up (or: $other)"
}

# discard DIR: removes a half-made tree, without following a mount that was left in it.
discard() {
  [[ -e $1 ]] || return 0
  awk -v d="$1/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | sort -r | xargs -r umount
  rm -rf --one-file-system "$1"
}

# mirror: the Debian mirror of this host's own apt.
mirror() {
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
    awk '$1 ~ /\/debian\/?$/ && $2 == "main" && !n++ { print $1 }'
}

# contained CMD...: all that CMD starts and mounts ends with this script, even by SIGKILL.
contained() {
  if unshare --mount --pid --fork --mount-proc true 2>/dev/null; then
    setpriv --pdeathsig KILL unshare --mount --pid --fork --mount-proc --kill-child "$@"
  else
    "$@"
  fi
}

need_mmdebstrap() {
  if ! command -v mmdebstrap >/dev/null || [[ -z $(mirror) ]]; then
    apt-get update >&2 || die "apt-get update failed, see above: mend the network or /etc/apt, then: make up"
  fi
  command -v mmdebstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mmdebstrap >&2 ||
    die "mmdebstrap is missing: apt-get install mmdebstrap"
  [[ $(mirror) ]] || die "apt knows no Debian mirror (a URI that ends in /debian, component main): add one to /etc/apt/sources.list"
}

build_root() { # ROOT SUITE PACKAGES
  say "building $1 from Debian $2; half a minute or more"
  discard "$1.new"
  # The packages start their server to set it up. It must not want port 3306: other builds may run.
  # shellcheck disable=SC2016 # expanded by mmdebstrap
  contained mmdebstrap --mode=root --variant=minbase --include="$3" \
    --essential-hook='mkdir -p "$1/etc/mysql/conf.d" && printf "[mysqld]\nskip_networking\nloose_mysqlx=OFF\n" >"$1/etc/mysql/conf.d/build.cnf"' \
    --aptopt='Acquire::Check-Valid-Until "false"' "$2" "$1.new" "$(mirror)" >&2 ||
    die "mmdebstrap failed, see above; to try again: make up"
  printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$1.new/etc/hosts"
  mv "$1.new" "$1"
}

# build_template: an initialised MySQL data directory, to be copied.
build_template() {
  local new=$dev/template.new
  say "initialising MySQL"
  discard "$new"
  mkdir -p "$new"
  cat >"$new/init.sql" <<SQL
ALTER USER root@localhost IDENTIFIED BY '$password';
CREATE USER root@127.0.0.1 IDENTIFIED BY '$password';
GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;
GRANT PROXY ON ''@'' TO root@127.0.0.1 WITH GRANT OPTION;
SQL
  (become "$root" "$new" mysql mysqld --no-defaults --initialize-insecure --datadir=/srv/data --init-file=/srv/init.sql) 2>"$dev/template.log" ||
    die "mysqld --initialize failed, see $dev/template.log; to begin afresh: rm -rf $root && make up"
  rm -f "$new/data/auto.cnf" # so that each copy gets a server uuid of its own
  mv "$new" "$dev/template"
}

# build_mariadb_template: the same for MariaDB.
build_mariadb_template() {
  local new=$dev/mariadb-template.new
  say "initialising MariaDB"
  discard "$new"
  mkdir -p "$new"
  cat >"$new/init.sql" <<SQL
FLUSH PRIVILEGES;
DELETE FROM mysql.global_priv WHERE user = '' OR host NOT IN ('localhost', '127.0.0.1');
ALTER USER root@localhost IDENTIFIED BY '$password';
CREATE OR REPLACE USER root@127.0.0.1 IDENTIFIED BY '$password';
GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;
SQL
  (become "$mariadb_root" "$new" mysql mariadb-install-db --no-defaults --datadir=/srv/data --skip-test-db \
    --auth-root-authentication-method=normal --extra-file=/srv/init.sql) &>"$dev/mariadb-template.log" ||
    die "mariadb-install-db failed, see $dev/mariadb-template.log; to begin afresh: rm -rf $mariadb_root && make up"
  mv "$new" "$dev/mariadb-template"
}

# ready_root and ready_mariadb make what is missing; their renames make the mere existence of a name mean
# that it is complete.
ready_root() {
  need_root
  [[ -e $root && -e $dev/template ]] && return
  [[ $locked ]] || lock
  [[ -e $root ]] || { need_mmdebstrap; build_root "$root" unstable mysql-server,rabbitmq-server; }
  [[ -e $dev/template ]] || build_template
}

ready_mariadb() {
  need_root
  [[ -e $mariadb_root && -e $dev/mariadb-template ]] && return
  [[ $locked ]] || lock
  [[ -e $mariadb_root ]] || { need_mmdebstrap; build_root "$mariadb_root" stable mariadb-server; }
  [[ -e $dev/mariadb-template ]] || build_mariadb_template
}

ready_tools() {
  need_root
  [[ -e $tools_root ]] && return
  [[ $locked ]] || lock
  need_mmdebstrap
  build_root "$tools_root" stable "$tools"
}

# ready READY...: several of them at the same time: most of it is waiting for packages.
ready() {
  local each pids=()
  need_root
  [[ -e $root && -e $mariadb_root && -e $tools_root ]] || need_mmdebstrap
  for each; do
    "$each" &
    pids+=($!)
  done
  for each in "${pids[@]}"; do wait "$each" || die "not all could be made ready, see above; to try again: make up"; done
}

# ---- one server

# claim DIR PORT: checks the arguments and takes DIR for this process and what it becomes.
claim() {
  [[ ${1-} == /* && ${2-} =~ ^[0-9]+$ ]] || die "usage: $self mysqld|mariadbd|rabbitmq DIR PORT, where DIR is an absolute path"
  mkdir -p "$1"
  exec 8>"$1/lock"
  flock -w 2 8 || die "$1 is in use by process $(cat "$1/pid" 2>/dev/null || echo '(starting)'): stop it, or name another directory"
  rm -rf "$1/tmp" # a killed server's socket lock names a process that may still be seen
}

# become ROOT DIR USER CMD...: turns this process into CMD, as USER in a root filesystem, with DIR as /srv.
# The mounts are in a namespace that ends with it; where that is not permitted a parent stays to undo them.
become() {
  local mnt=$dev/mnt.$BASHPID child status=0
  [[ $command == up ]] || exec 9>&- # a server must not hold the clone's lock
  if unshare --mount true 2>/dev/null; then
    exec unshare --mount "$BASH" "$self" enter "$dev/mnt" "$@"
  fi
  "$BASH" "$self" enter "$mnt" "$@" &
  child=$!
  trap 'kill -TERM "$child" 2>/dev/null' TERM INT
  while start_time "$child" >/dev/null; do status=0; wait "$child" || status=$?; done
  umount -R "$mnt"
  rmdir "$mnt"
  exit "$status"
}

# enter MNT ROOT DIR USER CMD...: the second half of become, inside the namespace. CMD may begin with VAR=value.
enter() {
  local mnt=$1 dir=$3 user=$4
  mkdir -p "$mnt" "$dir/tmp"
  mount --bind "$2" "$mnt"
  shift 4
  mount --bind /proc "$mnt/proc"
  mount --bind /dev "$mnt/dev"
  mount --bind "$dir" "$mnt/srv"
  chroot "$mnt" chown -R "$user:$user" /srv
  record $$ "$dir"
  exec chroot --userspec="$user:$user" "$mnt" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/srv TMPDIR=/srv/tmp TZ=UTC LC_ALL=C.UTF-8 "$@"
}

# furnish DIR TEMPLATE: gives a server its data, unless it has them.
furnish() {
  [[ -e $1/data ]] && return
  rm -rf "$1/data.new"
  cp -a --reflink=auto "$2/data" "$1/data.new"
  mv "$1/data.new" "$1/data"
}

# keyring DIR DATA: DIR/bin gets what makes a server load a keyring: a manifest, whose place is beside
# the server's binary, and the keyring's settings, whose place is beside its library. DATA is the
# server's own name for its data directory.
keyring() {
  mkdir -p "$1/bin"
  echo '{"components": "file://component_keyring_file"}' >"$1/bin/mysqld.my"
  echo "{\"path\": \"$2/keyring\", \"read_only\": false}" >"$1/bin/component_keyring_file.cnf"
}

mysqld() { # DIR PORT OPTIONS...
  claim "$@"
  local dir=$1 port=$2 binary=mysqld encrypted=
  shift 2
  [[ " $* " != *' --binlog-encryption=ON '* ]] || encrypted=yes
  if engine; then
    rm -f "$dir/bin/mysqld.my"
    [[ ! $encrypted ]] || keyring "$dir" /var/lib/mysql
    dockerise "$dir" "$port" mysql mysqld "${mysqld_options[@]}" "$@"
  fi
  ready_root
  if [[ $encrypted ]]; then # both places are the other servers' too: so the binary and the library are copied
    keyring "$dir" /srv/data
    cp -L --reflink=auto "$root/usr/sbin/mysqld" "$root/usr/lib/mysql/plugin/component_keyring_file.so" "$dir/bin/"
    binary=/srv/bin/mysqld
    set -- --basedir=/usr --plugin-dir=/srv/bin "$@"
  fi
  furnish "$dir" "$dev/template"
  become "$root" "$dir" mysql "$binary" --no-defaults --datadir=/srv/data --tmpdir=/srv/tmp \
    --socket=/srv/tmp/mysql.sock --pid-file=/srv/tmp/mysql.pid \
    "${mysqld_options[@]}" --bind-address=127.0.0.1 --port="$port" "$@"
}

mariadbd() { # DIR PORT OPTIONS...
  claim "$@"
  local dir=$1 port=$2
  shift 2
  if [[ " $* " == *' --encrypt-binlog=ON '* ]]; then
    [[ -e $dir/keys ]] || echo "1;$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')" >"$dir/keys"
    set -- --plugin-load-add=file_key_management --loose-file-key-management-filename=/srv/keys "$@"
  fi
  if engine; then dockerise "$dir" "$port" mariadb mariadbd "${mariadbd_options[@]}" "$@"; fi
  ready_mariadb
  furnish "$dir" "$dev/mariadb-template"
  become "$mariadb_root" "$dir" mysql mariadbd --no-defaults --datadir=/srv/data --tmpdir=/srv/tmp \
    --socket=/srv/tmp/mysql.sock --pid-file=/srv/tmp/mysql.pid \
    "${mariadbd_options[@]}" --bind-address=127.0.0.1 --port="$port" "$@"
}

rabbitmq() { # DIR PORT [TLS-PORT]
  claim "$@"
  local dir=$1 port=$2 tls=${3-}
  if engine; then
    [[ ! $tls ]] || broker_tls 5671 >"$dir/tls.conf"
    dockerise "$dir" "$port" rabbitmq
  fi
  ready_root
  [[ -s $dir/node ]] || echo "relay-$RANDOM-$RANDOM@localhost" >"$dir/node" # the data belong to this name
  free_port >"$dir/epmd.port"
  echo "[rabbitmq_consistent_hash_exchange${MANAGEMENT_PORT:+,rabbitmq_management}]." >"$dir/enabled_plugins"
  printf '%s\n' "listeners.tcp.local = 127.0.0.1:$port" 'disk_free_limit.absolute = 50MB' >"$dir/rabbitmq.conf"
  [[ ! ${MANAGEMENT_PORT-} ]] || printf '%s\n' 'management.tcp.ip = 127.0.0.1' "management.tcp.port = $MANAGEMENT_PORT" >>"$dir/rabbitmq.conf"
  [[ ! $tls ]] || broker_tls "127.0.0.1:$tls" >>"$dir/rabbitmq.conf"
  # epmd dies with the process that becomes the broker; waiting for it keeps Erlang from starting another.
  # shellcheck disable=SC2016 # expanded inside
  become "$root" "$dir" rabbitmq ERL_EPMD_PORT="$(<"$dir/epmd.port")" ERL_EPMD_ADDRESS=127.0.0.1 \
    RABBITMQ_NODENAME="$(<"$dir/node")" RABBITMQ_DIST_PORT="$(free_port)" \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}' \
    RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CONFIG_FILE=/srv/rabbitmq.conf RABBITMQ_ADVANCED_CONFIG_FILE=/srv/advanced.config \
    RABBITMQ_ENABLED_PLUGINS_FILE=/srv/enabled_plugins RABBITMQ_MNESIA_BASE=/srv/data RABBITMQ_LOG_BASE=/srv/log \
    RABBITMQ_LOGS=- ERL_CRASH_DUMP=/srv/log/erl_crash.dump RUNNING_UNDER_SYSTEMD=true \
    sh -c 'setpriv --pdeathsig KILL epmd 8>&- & until epmd -names >/dev/null 2>&1; do sleep 0.05; done
      exec /usr/lib/rabbitmq/bin/rabbitmq-server'
}

# broker_tls LISTENER: a broker's settings for TLS.
broker_tls() {
  printf '%s\n' "listeners.ssl.local = $1" 'ssl_options.cacertfile = /srv/tls/ca.pem' \
    'ssl_options.certfile = /srv/tls/server.pem' 'ssl_options.keyfile = /srv/tls/server-key.pem' \
    'ssl_options.verify = verify_peer' 'ssl_options.fail_if_no_peer_cert = true'
}

rabbitmqctl() { # DIR ARGS...
  local dir=${1:?usage: rabbitmqctl DIR ARG...}
  shift
  if engine; then exec docker exec "$(<"$dir/container")" rabbitmqctl "$@"; fi
  need_root
  alive "$dir" || die "no broker runs in $dir: make up, or $self rabbitmq $dir PORT"
  exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 \
    ERL_EPMD_PORT="$(<"$dir/epmd.port")" RABBITMQ_CONF_ENV_FILE=/dev/null \
    /usr/lib/rabbitmq/bin/rabbitmqctl --node "$(<"$dir/node")" --erlang-cookie "$(<"$dir/.erlang.cookie")" "$@"
}

mysql() { # ARGS...
  if engine; then compose exec -T mysql mysql -uroot -p"$password" "$@"; exit; fi
  need_root
  alive "$dev/mysqld" || die "no MySQL runs here: make up"
  MYSQL_PWD=$password exec chroot "$root" mysql --no-defaults -h127.0.0.1 -P"$(<"$dev/mysqld.port")" -uroot "$@"
}

mariadb() { # ARGS...
  if engine; then compose exec -T mariadb mariadb -uroot -p"$password" "$@"; exit; fi
  need_root
  alive "$dev/mariadbd" || die "no MariaDB runs here: make up"
  MYSQL_PWD=$password exec chroot "$mariadb_root" mariadb --no-defaults --disable-ssl-verify-server-cert -h127.0.0.1 -P"$(<"$dev/mariadbd.port")" -uroot "$@"
}

# mysqlbinlog DIR ARGS...: DIR becomes the user's of the server. The password is MYSQL_PWD's.
mysqlbinlog() {
  local dir=${1:?usage: mysqlbinlog DIR ARG...}
  shift
  if engine; then
    command -v mysqlbinlog >/dev/null || die "mysqlbinlog is missing: install MySQL's client programs, and see that it is in the PATH"
    exec env -C "$dir" mysqlbinlog --no-defaults "$@"
  fi
  ready_root
  become "$root" "$dir" mysql env -C /srv MYSQL_PWD="${MYSQL_PWD-$password}" mysqlbinlog --no-defaults "$@"
}

# tool NAME ARGS...: in a mount namespace of its own, which ends with it.
tool() {
  local name=${1:?usage: tool NAME ARG...}
  shift
  if engine || ! command -v apt-get >/dev/null || ((EUID != 0)); then
    command -v "$name" >/dev/null || die "$name is missing: install it, and see that it is in the PATH"
    exec "$name" "$@"
  fi
  ready_tools
  exec 9>&-
  exec unshare --mount "$BASH" "$self" use "$name" "$@"
}

# use NAME ARGS...: the second half of tool.
use() {
  local at
  for at in /proc /dev /tmp "$top"; do
    mkdir -p "$tools_root$at"
    mount --rbind "$at" "$tools_root$at"
  done
  exec chroot "$tools_root" env -C "$PWD" "$@"
}

# ---- Docker

compose() {
  MYSQLD_OPTIONS="${mysqld_options[*]}" MARIADBD_OPTIONS="${mariadbd_options[*]}" ROOT_PASSWORD=$password \
    MYSQL_PORT=$(<"$dev/mysqld.port") MARIADB_PORT=$(<"$dev/mariadbd.port") AMQP_PORT=$(<"$dev/rabbitmq.port") \
    docker compose -p "relay-$(cksum <<<"$top" | cut -d' ' -f1)" -f "$top/testdata/compose.yaml" "$@"
}

# dockerise DIR PORT SERVICE CMD...: the image of a compose service as a foreground server; never returns.
dockerise() {
  local dir=$1 port=$2 service=$3 name=relay-$3-$2 inner volume pid=0 child status=0 files=()
  shift 3
  case $service in
    mysql | mariadb) inner=3306 volume=/var/lib/mysql ;;
    rabbitmq) inner=5672 volume=/var/lib/rabbitmq ;;
  esac
  if [[ -e $dir/bin/mysqld.my ]]; then # see keyring
    files=(-v "$dir/bin/mysqld.my:/usr/sbin/mysqld.my:ro"
      -v "$dir/bin/component_keyring_file.cnf:/usr/lib64/mysql/plugin/component_keyring_file.cnf:ro")
  fi
  [[ $service != rabbitmq || ! ${MANAGEMENT_PORT-} ]] || files+=(-p "127.0.0.1:$MANAGEMENT_PORT:15672")
  if [[ -e $dir/keys ]]; then files+=(-v "$dir/keys:/srv/keys:ro"); fi
  [[ ! -d $dir/tls ]] || files+=(-v "$dir/tls:/srv/tls:ro")
  if [[ $service == rabbitmq && ${tls-} ]]; then
    files+=(-v "$dir/tls.conf:/etc/rabbitmq/conf.d/20-tls.conf:ro" -p "127.0.0.1:$tls:5671")
  fi
  echo "$name" >"$dir/container"
  docker rm -f "$name" &>/dev/null || true
  docker run --rm --name "$name" --hostname "$service" -p "127.0.0.1:$port:$inner" -v "$dir/data:$volume" "${files[@]}" \
    -e MYSQL_ROOT_PASSWORD="$password" -e MYSQL_ROOT_HOST=% -e MARIADB_ROOT_PASSWORD="$password" -e RABBITMQ_ENABLED_PLUGINS="rabbitmq_consistent_hash_exchange${MANAGEMENT_PORT:+,rabbitmq_management}" \
    "$(sed -n "s/^ *image: *\($service:.*\)/\1/p" "$top/testdata/compose.yaml")" "$@" &
  child=$!
  trap 'docker stop -t 60 "$name" >/dev/null' TERM INT
  while start_time "$child" >/dev/null && ! { pid=$(docker inspect -f '{{.State.Pid}}' "$name" 2>/dev/null) && ((pid)); }; do sleep 0.1; done
  echo "$pid" >"$dir/pid"
  while start_time "$child" >/dev/null; do status=0; wait "$child" || status=$?; done
  exit "$status"
}

# ---- all servers

mysqld_answers() {
  MYSQL_PWD=$password chroot "$root" mysql --no-defaults -h127.0.0.1 -P"$1" -uroot -e 'SELECT 1' &>/dev/null
}

mariadbd_answers() {
  MYSQL_PWD=$password chroot "$mariadb_root" mariadb --no-defaults -h127.0.0.1 -P"$1" -uroot -e 'SELECT 1' &>/dev/null
}

# rabbitmq_answers PORT: the broker takes the AMQP 0-9-1 greeting and begins with a method frame (type 1).
rabbitmq_answers() {
  # shellcheck disable=SC2016 # expanded inside
  timeout 5 "$BASH" -c 'exec 3<>"/dev/tcp/127.0.0.1/$1"; printf "AMQP\0\0\11\1" >&3
    [[ $(head -c 1 <&3 | od -An -tu1) -eq 1 ]]' _ "$1" 2>/dev/null
}

declare -A started=() # NAME: process that start began

# start NAME: a foreground server, put into the background, unless one answers already. One that
# only starts is waited for, and so is one that is just being killed.
start() {
  local dir=$dev/$1 port end=$((SECONDS + 120))
  mkdir -p "$dir"
  while claimed "$dir" && ((SECONDS < end)); do
    alive "$dir" && "$1_answers" "$(<"$dev/$1.port")" && return
    sleep 0.1
  done
  port=$(kept_port "$1")
  setsid "$BASH" "$self" "$1" "$dir" "$port" >"$dev/$1.log" 2>&1 </dev/null 9>&- &
  started[$1]=$!
}

# await NAME: until it answers; fails when it has ended, or after three minutes.
await() {
  local dir=$dev/$1 end=$((SECONDS + 180))
  until alive "$dir" && "$1_answers" "$(<"$dev/$1.port")"; do
    if ((SECONDS > end)) || ! { claimed "$dir" || start_time "${started[$1]-none}" >/dev/null; }; then
      tail -n 15 "$dev/$1.log" >&2
      die "$1 does not answer on port $(<"$dev/$1.port"): the whole log is $dev/$1.log"
    fi
    sleep 0.1
  done
}

# publish NAME VALUE...: writes .dev/env, for the shell and for the tests, and prints it. It leaves out
# what is empty.
publish() {
  local quote="'\\''"
  while (($#)); do
    [[ -z $2 ]] || printf "%s='%s'\n" "$1" "${2//\'/$quote}"
    shift 2
  done >"$dev/env.new"
  mv "$dev/env.new" "$dev/env"
  cat "$dev/env"
}

must_reach() { # VARIABLE HOST:PORT
  local at=${2//[][]/}
  reachable "${at%:*}" "${at##*:}" || die "$1 is set but nothing answers at '$2': start that server, or unset it"
}

must_reach_dsn() { must_reach "$1" "$(sed -nE 's/.*tcp\(([^)]+)\).*/\1/p' <<<"${!1}")"; } # VARIABLE

# given: whether MySQL and RabbitMQ are there already; the environment says where.
given() {
  local dsn=${RELAY_TEST_MYSQL_DSN-} url=${RELAY_TEST_AMQP_URL-} at
  [[ $dsn$url ]] || return
  [[ $dsn && $url ]] || die "RELAY_TEST_MYSQL_DSN and RELAY_TEST_AMQP_URL go together: set both, or unset both"
  must_reach_dsn RELAY_TEST_MYSQL_DSN
  at=$(sed -nE 's#^amqps?://([^@/]*@)?([^/?]+).*#\2#p' <<<"$url")
  if [[ ! $at =~ :[0-9]+$ ]]; then [[ $url == amqps:* ]] && at+=:5671 || at+=:5672; fi
  must_reach RELAY_TEST_AMQP_URL "$at"
  say "using the servers of RELAY_TEST_MYSQL_DSN and RELAY_TEST_AMQP_URL"
}

given_mariadb() {
  [[ ${RELAY_TEST_MARIADB_DSN-} ]] || return
  must_reach_dsn RELAY_TEST_MARIADB_DSN
  say "using the server of RELAY_TEST_MARIADB_DSN"
}

up() {
  local dsn url mariadb services=()
  lock
  if given; then dsn=$RELAY_TEST_MYSQL_DSN url=$RELAY_TEST_AMQP_URL; else services=(mysqld rabbitmq); fi
  if given_mariadb; then
    mariadb=$RELAY_TEST_MARIADB_DSN
  elif [[ ${dsn-} ]] && ! able; then
    mariadb=
    say "no MariaDB: its tests fail; for them set RELAY_TEST_MARIADB_DSN, start Docker, or be root on Debian"
  else
    services+=(mariadbd)
  fi
  bring_up "${services[@]}"
  publish RELAY_TEST_MYSQL_DSN "${dsn-root:$password@tcp(127.0.0.1:$(<"$dev/mysqld.port"))/}" \
    RELAY_TEST_MARIADB_DSN "${mariadb-root:$password@tcp(127.0.0.1:$(<"$dev/mariadbd.port"))/}" \
    RELAY_TEST_AMQP_URL "${url-amqp://guest:guest@127.0.0.1:$(<"$dev/rabbitmq.port")/}"
}

bring_up() { # NAME...
  local name
  (($#)) || return 0
  if engine; then
    for name in mysqld mariadbd rabbitmq; do # a container that runs has its port
      [[ -s $dev/$name.port && -n $(compose ps -q "${name%d}" 2>/dev/null) ]] || kept_port "$name" >/dev/null
    done
    compose up -d --wait "${@%d}" >&2 || die "docker compose failed, see above; for the servers' logs: docker compose ls, docker compose -p NAME logs"
    mkdir -p "$dev/rabbitmq"
    compose ps -q rabbitmq >"$dev/rabbitmq/container"
    return
  fi
  case "$*" in
    *mysqld*mariadbd*) ready ready_root ready_mariadb ready_tools ;;
    *mysqld*) ready ready_root ready_tools ;;
    *) ready ready_mariadb ready_tools ;;
  esac
  for name; do start "$name"; done
  for name; do await "$name"; done
}

# stop NAME: SIGTERM, and after a minute SIGKILL.
stop() {
  local dir=$dev/$1 pid end=$((SECONDS + 60))
  while claimed "$dir" && ! alive "$dir" && ((SECONDS < end)); do sleep 0.1; done # it only just starts
  alive "$dir" || return 0
  pid=$(<"$dir/pid")
  say "stopping $1 (process $pid)"
  kill -TERM "$pid"
  while alive "$dir"; do
    ((SECONDS < end)) || { say "$1 does not stop: killing it"; kill -KILL "$pid"; end=$((SECONDS + 60)); }
    sleep 0.1
  done
}

down() {
  local mnt
  lock
  rm -f "$dev/env"
  stop mysqld
  stop mariadbd
  stop rabbitmq
  for mnt in "$dev"/mnt.*; do # left by a killed parent, see become; one in use stays
    if umount -R "$mnt" 2>/dev/null; then rmdir "$mnt"; fi
  done
  if [[ -s $dev/mysqld.port && -s $dev/mariadbd.port && -s $dev/rabbitmq.port ]] && engine; then compose down >&2; fi
}

command=${1-}
case $command in
  up | down | mysqld | mariadbd | rabbitmq | rabbitmqctl | mysql | mariadb | mysqlbinlog | tool | enter | use) shift; "$command" "$@" ;;
  *) die "usage: $0 up | down | mysqld|mariadbd DIR PORT [OPTION...] | rabbitmq DIR PORT [TLS-PORT] | rabbitmqctl DIR ARG... | mysql|mariadb ARG... | mysqlbinlog DIR ARG... | tool NAME ARG..." ;;
esac
