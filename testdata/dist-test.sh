#!/usr/bin/env bash
# dist-test.sh: what make dist makes, tried. It needs the servers (make up), and root on Debian.
#
# It builds the commit twice, in two directories, and compares the bytes. Then it installs the .deb in a
# throw-away layer over .dev/tools-root, looks at what is there, boots systemd in it (namespaces, a control
# group of its own, the host's network), runs both units against the servers, upgrades, removes, purges.
# shellcheck disable=SC2016 # expanded inside
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
servers=$top/testdata/servers.sh
name=relay_dist_$$

say() { printf 'dist-test: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# same: two builds of one commit are the same bytes, whatever the directory, the umask and the zone.
same() {
  say "building twice"
  "$top/testdata/dist.sh" "$tmp/dist" >/dev/null
  mkdir -p "$tmp/elsewhere"
  git clone --quiet "$top" "$tmp/elsewhere/clone"
  (umask 077 && TZ=Asia/Tokyo "$tmp/elsewhere/clone/testdata/dist.sh" >/dev/null)
  diff "$tmp/dist/SHA256SUMS" "$tmp/elsewhere/clone/dist/SHA256SUMS" || die "two builds of one commit differ"
  (cd "$tmp/dist" && sha256sum --quiet --strict -c SHA256SUMS)
  [[ -z $(git -C "$tmp/elsewhere/clone" status --porcelain) ]] || die "dist/ is not ignored by git"
}

# layer: the tools root as $tmp/root, with everything that is written in memory.
layer() {
  "$servers" tool true
  [[ -d $top/.dev/tools-root ]] || die "there is no .dev/tools-root: it is made on Debian where no Docker engine answers"
  mkdir -p "$tmp/layer" "$tmp/root"
  mount -t tmpfs tmpfs "$tmp/layer"
  mkdir "$tmp/layer/upper" "$tmp/layer/work"
  mount -t overlay overlay -o "lowerdir=$top/.dev/tools-root,upperdir=$tmp/layer/upper,workdir=$tmp/layer/work" "$tmp/root"
  mkdir -p "$tmp/root/dist"
  mount --bind "$tmp/dist" "$tmp/root/dist"
}

# boot: systemd in the layer; sets pid.
boot() {
  say "booting systemd"
  mkdir "$tmp/cgroup"
  mount -t cgroup2 cgroup2 "$tmp/cgroup" || die "there is no cgroup2 for systemd: run this where one can be mounted"
  mkdir "$tmp/cgroup/$name"
  (echo "$BASHPID" >"$tmp/cgroup/$name/cgroup.procs" && exec unshare --mount --pid --cgroup --uts --ipc --fork --kill-child "$BASH" "$0" init "$tmp/root") &>"$tmp/console" &
  container=$!
  await "systemd does not come up" is_up
}

is_up() { pid=$(pgrep -P "$container") && [[ $(inside systemctl is-active basic.target 2>/dev/null) == active ]]; }

# init ROOT: becomes systemd.
init() {
  cd "$1"
  mount -t proc proc proc
  mount -t sysfs -o ro sysfs sys
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  mount -t tmpfs tmpfs run
  mount -t tmpfs tmpfs tmp
  mount -t tmpfs tmpfs dev
  mkdir dev/pts dev/shm
  local each
  for each in null zero full random urandom tty; do
    mknod -m 666 "dev/$each" c "$((0x$(stat -c %t "/dev/$each")))" "$((0x$(stat -c %T "/dev/$each")))"
  done
  mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  ln -s /proc/self/fd dev/fd
  mkdir -p .old
  pivot_root . .old # a chroot must make no user namespaces, which PrivateUsers= needs
  exec env -i container=dist-test PATH=/usr/sbin:/usr/bin LC_ALL=C.UTF-8 /bin/sh -c \
    'umount -l /.old && mount --make-rshared / && exec /lib/systemd/systemd --unit=basic.target --log-target=journal'
}

inside() { nsenter -t "$pid" -m -p -C -u -i -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 SYSTEMD_PAGER=cat DEBIAN_FRONTEND=noninteractive "$@"; }

# await WHAT COMMAND...: until it succeeds, a minute at most; WHAT is told when it does not.
await() {
  local what=$1 end=$((SECONDS + 60))
  shift
  until "$@"; do
    ((SECONDS < end)) || die "$what; the console and the journal: $(<"$tmp/console") $(inside journalctl --no-pager -n 20 -o cat -u 'relay*')"
    sleep 0.2
  done
}

has() { # TEXT COMMAND...
  local text=$1 got
  shift
  got=$(inside "$@" 2>&1) || true
  [[ $got == *"$text"* ]]
}

want() { await "'${*:2}' has no '$1'" has "$@"; } # TEXT COMMAND...

is() { [[ $(inside systemctl show -P "$3" "$1") == "$2" ]]; }

state() { await "$1 does not get $3=$2" is "$@"; } # UNIT VALUE PROPERTY

vhost() { "$servers" rabbitmqctl "$top/.dev/rabbitmq" "$@" >/dev/null; }

# settings FILE SIDE: what an operator fills in; the password of the source stands in a file.
settings() {
  cat >"$tmp/root/etc/relay/$1.env" <<ENV
RELAY_MYSQL_DSN='$(sed -E 's/^([^:]*):.*@/\1@/' <<<"$RELAY_TEST_MYSQL_DSN")$name'
RELAY_AMQP_URL='${RELAY_TEST_AMQP_URL%/}/$name'
RELAY_PARTITIONS=1
RELAY_EXCHANGE=$1
RELAY_LISTEN=
ENV
  sed -E 's/^[^:]*:(.*)@.*/\1/' <<<"$RELAY_TEST_MYSQL_DSN" >"$tmp/root/etc/relay/$2mysql-password"
}

# as_typed: relayctl reads settings as systemd does, and each unit's command is right as it is typed.
as_typed() {
  local each
  cat >"$tmp/root/etc/relay/odd.env" <<'ENV'
RELAY_1='a"b$HOME`id`#\x(c) d'
 RELAY_2 = "x \"y\" \$z \q 'k' \\\\"
RELAY_3=a b # c "d" (e) \$f \\g
;RELAY_4=4
RELAY_5=
RELAY_6=ü=(1)
ENV
  printf 'RELAY_7=a\r\nRELAY_8="b c"\r' >>"$tmp/root/etc/relay/odd.env"
  inside sh -c 'mkdir /run/odd && printf "#!/bin/sh\nexec env\n" >/run/odd/relay && chmod +x /run/odd/relay
    PATH=/run/odd:$PATH relayctl -i odd status | grep "^RELAY_[0-9]" | sort >/run/odd/relayctl
    printf "[Service]\nType=oneshot\nEnvironmentFile=/etc/relay/odd.env\nExecStart=/bin/sh -c \"env >/run/odd/env\"\n" >/run/systemd/system/odd.service
    systemctl daemon-reload && systemctl start odd && grep "^RELAY_[0-9]" /run/odd/env | sort >/run/odd/systemd
    test "$(wc -l </run/odd/systemd)" = 7 && diff /run/odd/systemd /run/odd/relayctl' || die "relayctl reads settings otherwise than systemd"
  for each in 'relayctl status' 'relayctl check' 'relayctl -i shop status' 'relayctl -i shop check' 'relayctl resume --undo --help'; do
    # shellcheck disable=SC2086 # as it is typed
    inside $each >"$tmp/said" 2>&1 || die "$each: $(<"$tmp/said")"
  done
  want 'type: systemctl stop relay@shop first' relayctl -i shop resume --undo
  want 'type: sudo relayctl status' setpriv --reuid 65534 --regid 65534 --clear-groups relayctl status
}

have_arrived() {
  local got
  got=$("$servers" rabbitmqctl "$top/.dev/rabbitmq" -q list_queues -p "$name" --no-table-headers name messages | sort | tr '\t\n' '= ')
  [[ $got == 'relay.0=1 shop.0=1 ' ]]
}

is_restarted() { [[ $(inside systemctl show -P InvocationID relay) != "$before" ]]; }

files() { inside find /etc /usr -xdev -not -type d | sort; }

installed() {
  local deb
  deb=/dist/$(cd "$tmp/dist" && echo relay_*_"$(dpkg --print-architecture)".deb)
  say "installing $deb"
  files >"$tmp/before"
  inside dpkg -i "$deb" >/dev/null
  want '640 root:root' stat -c '%a %U:%G' /etc/relay/relay.env
  want /etc/relay/relay.env dpkg-query -W -f '${Conffiles}' relay
  want "$(git -C "$top" rev-parse --short=12 HEAD)" relay version
  want "$(git -C "$top" log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)" relay version
  want 'EXIT STATUS' sh -c 'gzip -dc /usr/share/man/man1/relay.1.gz >/tmp/relay.1 && man -l /tmp/relay.1 | cat'
  [[ -z $(inside mandoc -T lint /tmp/relay.1) ]] || die "mandoc has something to say about the manual page"
  [[ -z $(inside systemd-analyze verify relay.service relay@shop.service 2>&1) ]] || die "systemd-analyze verify has something to say"
  [[ -z $(inside dpkg --verify relay) ]] || die "dpkg --verify finds changes"
  want 'disabled' sh -c 'systemctl is-enabled relay || true'
  want 'inactive' sh -c 'systemctl is-active relay || true'
  want 'github.com/go-sql-driver/mysql' cat /usr/share/doc/relay/copyright
  want 'resume' bash -c '. /usr/share/bash-completion/bash_completion; COMP_WORDS=(relayctl res) COMP_CWORD=1; _comp_load relayctl 2>/dev/null || __load_completion relayctl; _relay; echo ${COMPREPLY[*]}'

  say "running both units"
  inside sh -c 'for unit in relay relay@; do mkdir -p /etc/systemd/system/$unit.service.d && printf "[Service]\nRestartSec=0\nWatchdogSec=9\n" >/etc/systemd/system/$unit.service.d/test.conf; done; systemctl daemon-reload'
  inside systemctl start relay 2>/dev/null && die "it starts without an address"
  state relay 64 ExecMainStatus # it has no address
  state relay 0 NRestarts
  want 'type: relay print env > /etc/relay/none.env' relayctl -i none status
  inside relay schema sql | "$servers" mysql "$name"
  "$servers" mysql "$name" -e "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (UUID_TO_BIN(UUID()), 4711, 'order.placed', '{}')"
  settings relay ''
  settings shop shop.
  inside relayctl -i shop check >"$tmp/said" 2>&1 || true
  grep -q 'directory .*no such file' "$tmp/said" && die "before the first start: $(<"$tmp/said")"
  inside systemctl enable --now relay relay@shop 2>/dev/null
  await "the event does not arrive" have_arrived
  state relay active ActiveState
  state relay@shop active ActiveState
  want 'Seccomp:	2' sh -c 'cat /proc/$(systemctl show -P MainPID relay)/status'
  [[ $(inside sh -c 'stat -c %u /proc/$(systemctl show -P MainPID relay)') != 0 ]] || die "it runs as root"
  inside systemd-analyze security --threshold=19 relay.service >/dev/null || die "its exposure is 2.0 or more"

  want 'following' systemctl show -P StatusText relay
  as_typed
  inside systemctl reload relay
  want 'SIGHUP' journalctl -u relay -o cat
  # It is frozen: the watchdog ends it, and it is started again.
  inside systemctl kill -s STOP relay
  state relay 1 NRestarts
  state relay active ActiveState
  want 'watchdog' journalctl -u relay -o cat
  inside systemctl reset-failed relay

  inside systemctl kill -s KILL relay
  state relay 1 NRestarts
  state relay active ActiveState

  say "upgrading, removing, purging"
  before=$(inside systemctl show -P InvocationID relay)
  inside sh -c 'echo "# mine" >>/etc/relay/relay.env'
  inside dpkg -i "$deb" >/dev/null
  await "an upgrade does not restart it" is_restarted
  state relay active ActiveState
  want '# mine' cat /etc/relay/relay.env
  inside systemctl stop relay
  state relay success Result
  inside sh -c 'truncate -s 10 /var/lib/relay/checkpoint.json; ! systemctl start relay 2>/dev/null'
  state relay 78 ExecMainStatus
  state relay 0 NRestarts
  inside dpkg -r relay >/dev/null
  state relay@shop inactive ActiveState
  want '# mine' cat /etc/relay/relay.env
  [[ $(inside dpkg -P relay 2>&1) == *'/var/lib/private/relay-shop stays'* ]] || die "a purge does not name the state that stays"
  inside sh -c 'rm -r /etc/relay/shop.* /etc/relay/odd.env /etc/relay/mysql-password /etc/systemd/system/relay*.service.d && rmdir /etc/relay'
  files | diff "$tmp/before" - || die "a purge does not leave what was there before"
}

# leave: nothing of it stays.
leave() {
  [[ ! ${pid-} ]] || kill -KILL "$pid" 2>/dev/null || true
  wait
  [[ ! -d $tmp/cgroup/$name ]] || find "$tmp/cgroup/$name" -depth -type d -exec rmdir {} \;
  "$servers" mysql -e "DROP DATABASE IF EXISTS $name" || true
  vhost delete_vhost "$name" 2>/dev/null || true
  for each in root/dist root layer cgroup; do mountpoint -q "$tmp/$each" && umount -R "$tmp/$each"; done
  rm -rf --one-file-system "$tmp"
}

case ${1-} in
  init) init "$2"; exit ;;
  '') ((EUID == 0)) || die "it needs root: sudo make dist-test"; exec unshare --mount "$BASH" "$0" mounted ;;
esac
tmp=$(mktemp -d)
trap leave EXIT
set -a
# shellcheck disable=SC1091 # made by make up
. "$top/.dev/env"
set +a
same
layer
"$servers" mysql -e "CREATE DATABASE $name"
vhost add_vhost "$name"
vhost set_permissions -p "$name" guest '.*' '.*' '.*'
boot
installed
say "ok in $SECONDS s"
