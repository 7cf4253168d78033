#!/bin/sh
# Invocations of busybox, each labelled; output and status of each must be what the same binary gives under Linux.
# Runs in an empty scratch directory with a fixed environment.
umask 022
export TZ=UTC LC_ALL=C PATH=/bin

# t LABEL WORD...: one invocation. p LABEL 'SCRIPT': one pipeline or list, in a shell of its own.
t() { echo "== $1"; shift; busybox "$@" 2>&1; echo "status $?"; }
p() { echo "== $1"; busybox sh -c "$2" 2>&1; echo "status $?"; }

mkdir work && cd work || exit 99
printf 'pear 3\napple 10\nfig 7\nbanana 3\ncherry 22\napple 2\n' > fruit
printf 'one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n' > numbers
printf 'The quick brown fox\njumps over the lazy dog.\n\n\tIndented line\nlast line without newline' > prose
printf 'id,name,score\n1,ann,90\n2,bob,75\n3,cid,82\n4,dee,75\n' > table.csv
busybox seq 1 2000 > big
busybox dd if=/dev/zero of=zeros bs=1000 count=10 2>/dev/null
mkdir -p tree/a/b tree/c
echo 1 > tree/one.txt; echo 22 > tree/a/two.txt; echo 333 > tree/a/b/three.c; echo 4 > tree/c/four.txt
ln -s ../one.txt tree/c/link
touch -d '2020-01-02 03:04:05' tree/one.txt

# Text
t cat cat fruit
t cat-n cat -n prose
t cat-A cat -A prose
t cat-missing cat missing
t head head -n 3 numbers
t head-bytes head -c 11 numbers
t head-negative head -n -7 numbers
t tail tail -n 3 numbers
t tail-from tail -n +8 numbers
t tail-bytes tail -c 9 numbers
t sort sort fruit
t sort-numeric sort -k2,2n fruit
t sort-reverse sort -r fruit
t sort-unique-key sort -u -k1,1 fruit
t sort-stable sort -s -k2,2n fruit
t sort-check sort -c fruit
t sort-field sort -t , -k 3,3nr -k 2,2 table.csv
p sort-big 'busybox sort -n -r big | busybox head -n 3'
p uniq 'busybox cut -d" " -f1 fruit | busybox sort | busybox uniq -c'
p uniq-d 'busybox cut -d" " -f1 fruit | busybox sort | busybox uniq -d'
t cut-fields cut -d , -f 2,3 table.csv
t cut-bytes cut -c 2-4 numbers
t cut-complement cut -d , -f 3- table.csv
p tr 'busybox tr a-z A-Z < fruit'
p tr-squeeze 'echo aabbccdd | busybox tr -s a-c'
p tr-delete 'busybox tr -d aeiou < prose'
p tr-class 'busybox tr "[:space:]" "\n" < prose | busybox tr -s "\n"'
t wc wc fruit numbers prose big
t wc-l wc -l big
t wc-L wc -L prose
t nl nl prose
t rev rev numbers
t tac tac numbers
t fold fold -w 7 prose
t fold-s fold -s -w 10 prose
t expand expand -t 4 prose
t unexpand unexpand -a -t 4 prose
t paste paste -d : numbers fruit
t paste-s paste -s -d , numbers
t grep grep -n e numbers
t grep-v grep -v e numbers
t grep-c grep -c apple fruit
t grep-i grep -i THE prose
t grep-none grep nothing fruit
t grep-E grep -E '^(pear|fig) [0-9]+$' fruit
t grep-o grep -o '[0-9]*' fruit
t grep-r grep -r 3 tree
t grep-F grep -F . prose
t grep-w grep -w apple fruit
t grep-A grep -A 1 -B 1 three numbers
t egrep egrep 'n(e|i)' numbers
t sed sed 's/apple/orange/' fruit
t sed-n sed -n '2,4p' numbers
t sed-d sed '/e$/d' numbers
t sed-group sed -E 's/([a-z]+) ([0-9]+)/\2 \1/' fruit
t sed-hold sed -n '1!G;h;$p' numbers
t sed-append sed '/three/a\inserted' numbers
t sed-y sed 'y/abc/xyz/' fruit
t sed-branch sed ':a;N;$!ba;s/\n/+/g' numbers
p sed-i 'cp fruit f2; busybox sed -i "s/fig/date/" f2; cat f2; rm f2'
t sed-bad sed 's/x' numbers
t awk awk '{ print $2, $1 }' fruit
t awk-sum awk '{ s += $2 } END { print s, NR, s / NR }' fruit
t awk-array awk '{ n[$1] += $2 } END { for (k in n) print k, n[k] | "sort"; close("sort") }' fruit
t awk-F awk -F, 'NR > 1 && $3 > 76 { printf "%-5s|%5.1f\n", $2, $3 }' table.csv
t awk-functions awk 'BEGIN { s = "hello world"; print length(s), toupper(s), index(s, "wor"), substr(s, 3, 4); gsub(/o/, "0", s); print s; n = split("a:b:c", a, ":"); print n, a[2]; print match("foobar", /o+/), RSTART, RLENGTH }'
t awk-math awk 'BEGIN { print int(7.9), 2^10, 17 % 5, exp(0), sqrt(2), sin(0), 1e300 * 10; printf "%d %x %o %e %g %c %s\n", 42, 255, 8, 12345.678, 0.0001, 65, "str" }'
t awk-getline awk 'BEGIN { while (("echo a; echo b" | getline line) > 0) print "got " line }'
t awk-loop awk 'BEGIN { for (i = 0; i < 1000; i++) s = s i % 10; print length(s); i = 5; while (i --> 0) printf "%d ", i; print "" }'
t awk-regex awk '/^[a-c]/ && !/cherry/' fruit
t awk-error awk 'BEGIN { print ( }'
t diff diff fruit numbers
p diff-u 'busybox sed "s/fig/kiwi/" fruit > f3; busybox diff -u -L a -L b fruit f3'
t diff-same diff fruit fruit
p diff-q 'busybox diff -q fruit numbers'
p patch 'cp fruit f4; busybox diff -u fruit f3 > p; busybox patch f4 < p; cat f4; rm f4 p'
t cmp cmp fruit f3
t cmp-l cmp -l fruit f3
t strings strings /abi/tiny
t od od -c prose
t od-x od -A x -t x1z fruit
t od-d od -t d2 -N 16 fruit
t hexdump hexdump -C fruit
t hexdump-e hexdump -n 8 -e '4/1 "%02x " "\n"' fruit
t xxd xxd -l 32 fruit
p xxd-r 'busybox xxd fruit | busybox xxd -r | busybox cmp - fruit'
t tee-missing tee /no/such/file
p tee 'echo both | busybox tee t1 t2; cat t1 t2; rm t1 t2'
p comm-like 'busybox sort fruit > s1; busybox sort f3 > s2; busybox diff s1 s2; rm s1 s2'
p shuf 'busybox shuf -i 1-50 | busybox sort -n | busybox head -n 2'
t ls-missing ls nothing-here
t dos2unix sh -c 'printf "a\r\nb\r\n" > d; busybox dos2unix d; busybox od -c d; busybox unix2dos d; busybox od -c d; rm d'
t base64 base64 fruit
p base64-d 'busybox base64 big | busybox base64 -d | busybox cmp - big && echo same'
p uuencode 'busybox uuencode fruit name'
p uudecode 'busybox uuencode fruit out | busybox uudecode -o - | busybox cmp - fruit && echo same'

# Check sums
t md5sum md5sum fruit numbers big zeros
t sha1sum sha1sum fruit
t sha256sum sha256sum big
t sha512sum sha512sum prose
t sha3sum sha3sum prose
t crc32 crc32 fruit big
t cksum-check sh -c 'busybox md5sum fruit > sums; busybox md5sum -c sums; echo x >> sums; echo "00000000000000000000000000000000  big" >> sums; busybox md5sum -c sums; rm sums'

# Compression and archives
p gzip 'cp big g; busybox gzip g; ls; busybox gunzip g.gz; busybox cmp g big && echo same; rm g'
p gzip-c 'busybox gzip -c big | busybox gunzip -c | busybox md5sum'
p gzip-levels 'for l in 1 6 9; do busybox gzip -$l -c fruit | busybox zcat; done | busybox md5sum'
p gzip-t 'busybox gzip -c big > t.gz; busybox gzip -t t.gz; echo $?; busybox dd if=t.gz of=u.gz bs=1 count=100 2>/dev/null; busybox gzip -t u.gz; rm t.gz u.gz'
p bzip2 'busybox bzip2 -c big | busybox bunzip2 -c | busybox md5sum'
p bzip2-file 'cp big b; busybox bzip2 b; busybox bzcat b.bz2 | busybox tail -n 1; rm b.bz2'
p xz-bad 'busybox xzcat fruit'
p gunzip-bad 'busybox gunzip -c fruit'
p tar 'busybox tar -cf t.tar tree; busybox tar -tf t.tar | busybox sort; rm t.tar'
p tar-extract 'busybox tar -cf - tree | (mkdir x && cd x && busybox tar -xf -); busybox diff -r tree x/tree && echo same; rm -r x'
p tar-gz 'busybox tar -czf t.tgz tree fruit; busybox tar -tzf t.tgz | busybox sort; rm t.tgz'
p tar-bz2 'busybox tar -cjf t.tbz tree; busybox tar -xjOf t.tbz tree/a/two.txt; rm t.tbz'
p tar-list-long 'busybox tar -cf t.tar tree/one.txt; busybox tar -tvf t.tar; rm t.tar'
p tar-missing 'busybox tar -cf t.tar missing; rm -f t.tar'
p tar-exclude 'busybox tar -cf - --exclude "*.c" tree | busybox tar -t | busybox sort'
p tar-directory 'busybox tar -cf - -C tree a | busybox tar -t | busybox sort'
p cpio 'busybox find tree | busybox sort | busybox cpio -o -H newc > t.cpio; busybox cpio -t < t.cpio; rm t.cpio'
p cpio-extract 'busybox find tree | busybox cpio -o -H newc 2>/dev/null > t.cpio; mkdir x; cd x; busybox cpio -id < ../t.cpio; busybox diff -r tree ../tree && echo same; cd ..; rm -r x t.cpio'
p ar 'echo member > m; busybox ar -r l.a m; busybox ar -t l.a; busybox ar -p l.a m; rm m l.a'
p unzip-missing 'busybox unzip missing.zip'

# Files
p ls-names 'busybox ls tree'
p ls-F 'busybox ls -F tree tree/c'
p ls-R 'busybox ls -R tree'
p ls-l 'busybox ls -ln tree/one.txt'
p ls-a 'busybox ls -a tree/a'
p ls-1S 'busybox ls -1S fruit numbers big'
p ls-t 'touch -d "2001-01-01" o1; touch -d "2002-01-01" o2; busybox ls -t o1 o2; rm o1 o2'
t ls-d ls -d tree
p mkdir-p 'busybox mkdir -p n/e/s/t; find n; busybox rmdir -p n/e/s/t; ls n'
t mkdir-exists mkdir tree
p mkdir-m 'busybox mkdir -m 1750 mm; busybox stat -c "%a %F" mm; rmdir mm'
t rmdir-full rmdir tree
p cp 'busybox cp fruit copy; busybox cmp fruit copy && echo same; rm copy'
p cp-r 'busybox cp -r tree t2; busybox diff -r tree t2 && echo same; rm -r t2'
p cp-a 'busybox cp -a tree t2; busybox stat -c "%Y %a" t2/one.txt; busybox readlink t2/c/link; rm -r t2'
t cp-missing cp missing there
p mv 'cp fruit m1; busybox mv m1 m2; ls m1 m2; rm m2'
p mv-into 'mkdir md; cp fruit m1; busybox mv m1 md; ls md; rm -r md'
p rm-rf 'cp -r tree t3; busybox rm -rf t3; ls -d t3'
t rm-missing rm missing
t rm-f rm -f missing
p ln 'busybox ln fruit hard; busybox stat -c %h hard; rm hard'
p ln-s 'busybox ln -s fruit soft; busybox readlink soft; cat soft | busybox head -n 1; rm soft'
p ln-sf 'busybox ln -s a soft; busybox ln -sf b soft; busybox readlink soft; rm soft'
p readlink-f 'cd tree/c; busybox readlink -f link'
p realpath 'busybox realpath tree/../tree/a/./b'
t realpath-missing realpath missing/x
p touch 'busybox touch -d "2010-11-12 13:14:15" tt; busybox stat -c "%y %Y" tt; busybox date -r tt +%s; rm tt'
p chmod 'touch c; for m in 644 u+x go-r a=rw +t u+s,g=u 0; do busybox chmod $m c; busybox stat -c "%a %A" c; done; rm -f c'
p chmod-R 'cp -r tree t4; busybox chmod -R go-rwx t4; find t4 -exec busybox stat -c "%a %n" {} \; | busybox sort; rm -r t4'
p chown 'touch c; busybox chown 1000:2000 c; busybox stat -c "%u %g" c; busybox chgrp 5 c; busybox stat -c "%u %g" c; rm c'
p stat 'busybox stat -c "%n %s %F %h %a %U %G %b" fruit big zeros'
p stat-f 'busybox stat -f -c %T . >/dev/null; echo $?'
p truncate 'busybox truncate -s 5000 tr; busybox stat -c %s tr; busybox truncate -s +10 tr; busybox stat -c %s tr; rm tr'
p mktemp 'f=$(busybox mktemp -p . pre.XXXXXX); echo ${#f}; busybox stat -c %a $f; rm $f; d=$(busybox mktemp -d); busybox stat -c "%a %F" $d; rmdir $d'
p mkfifo 'busybox mkfifo ff; busybox stat -c "%F %a" ff; (echo through > ff &); cat ff; rm ff'
p mknod 'busybox mknod nn c 1 3; busybox stat -c "%F %t %T" nn; echo x > nn; rm nn'
t du du -s zeros
p du-tree 'busybox du -a tree/a | busybox cut -f 2 | busybox sort'
t dirname dirname /a/b/c a/b a / ''
t basename basename /a/b/c.txt .txt
p find-name 'busybox find tree -name "*.txt" | busybox sort'
p find-type 'busybox find tree -type d | busybox sort; busybox find tree -type l'
p find-size 'busybox find . -size +8 -type f | busybox sort'
p find-exec 'busybox find tree -name "*.txt" -exec busybox wc -c {} + | busybox sort'
p find-newer 'busybox find tree -type f -newer tree/one.txt | busybox sort'
p find-depth 'busybox find tree -maxdepth 1 | busybox sort; busybox find tree -mindepth 3'
p find-prune 'busybox find tree -name a -prune -o -print | busybox sort'
p find-delete 'cp -r tree t5; busybox find t5 -name "*.txt" -delete; busybox find t5 | busybox sort; rm -r t5'
p find-logic 'busybox find tree \( -name "*.c" -o -name "f*" \) -a -type f | busybox sort'
p find-perm 'chmod 600 tree/c/four.txt; busybox find tree -perm 600; chmod 644 tree/c/four.txt'
p find-missing 'busybox find missing'
p xargs 'busybox seq 1 10 | busybox xargs -n 3 echo'
p xargs-I 'busybox seq 1 3 | busybox xargs -I X echo "<X>"'
p xargs-0 'busybox find tree -type f -print0 | busybox xargs -0 busybox wc -c | busybox sort -n'
p xargs-fail 'echo x | busybox xargs busybox false'
p xargs-big 'busybox xargs busybox echo < big | busybox wc'
p which 'busybox which sh cat nothing-here'
t test-f test -f fruit
t test-d test -d fruit
t test-n test 3 -gt 2 -a -n x
t bracket '[' a '=' b ']'
p dd-skip 'busybox dd if=big bs=1000 skip=2 count=1 2>/dev/null | busybox md5sum'
p dd-conv 'echo hello | busybox dd conv=ucase 2>/dev/null; busybox dd if=fruit bs=4 count=3 2>&1 | busybox head -c 12'
p dd-seek 'busybox dd if=fruit of=dd bs=1 seek=10 count=5 2>/dev/null; busybox od -c dd; rm dd'
p dd-counts 'busybox dd if=/dev/zero of=dd bs=1k count=64 2>&1 | busybox head -n 2; busybox stat -c %s dd; rm dd'
p dd-random 'busybox dd if=/dev/urandom bs=1k count=4 2>/dev/null | busybox wc -c'
p sync 'busybox sync'
p truncate-empty 'busybox truncate -s 0 e; busybox cmp e /dev/null; rm e'

# Numbers, dates, names
t seq seq 3 -1 -2
t seq-w seq -w 8 11
t seq-s seq -s , 5
t factor factor 97 360 1234567 1000000007
t expr expr 3 + 4 '*' 5
t expr-match expr abcdef : 'abc\(.*\)'
t expr-compare expr 3 '>' 5
t expr-length expr length hello
t expr-error expr 1 / 0
p bc 'echo "scale=10; 22/7; 2^64; sqrt(2); a=5; a*a" | busybox bc'
p bc-loop 'echo "for (i=1; i<=5; i++) { f=1; for (j=1; j<=i; j++) f*=j; f }" | busybox bc'
p dc 'echo "2 3 + p 10 * p 7 % p 2 100 ^ p" | busybox dc'
t date date -u -d '2024-02-29 12:34:56' '+%Y-%m-%d %H:%M:%S %j %a %b %s %U %%'
t date-at date -u -d @1000000000
t date-tz sh -c 'TZ=EST5EDT,M3.2.0,M11.1.0 busybox date -d @1700000000'
t date-bad date -d nonsense
t cal cal 2 2024
t cal-year cal 1752
t printf printf '%s|%5d|%-5d|%05.1f|%x|%o|%e|%c\n' text 42 42 3.14159 255 8 12345.678 xyz
t printf-escape printf 'a\tb\\n\101\n%b\n' 'c\td'
t echo echo -e 'a\tb\c' ignored
t true true
t false false
t yes sh -c 'busybox yes no | busybox head -n 3'
t id id
p id-u 'busybox id -u; busybox id -un; busybox id -g; busybox id -Gn'
t whoami whoami
t uname-s uname -s -m
t hostname hostname
t env env -i A=1 B=2 busybox env
t env-u sh -c 'A=1 B=2 busybox env -u A busybox env | busybox grep "^[AB]="'
p pwd 'cd tree/a && busybox pwd'
t tty tty
t sleep sleep 0
t usleep usleep 1000
t arch arch
t nproc-lines sh -c 'busybox nproc | busybox grep -c "^[0-9][0-9]*$"'
t getopt getopt -o ab:c -l long,need: -- -a -bval --long rest --need x
t ipcalc ipcalc -bnm 192.168.1.10/24

# Processes and the shell
p sh-arith 'echo $((3 + 4 * 5)) $((2 ** 10)) $((0x1f)) $((7 / 2)) $((-7 % 3)) $((1 << 20)) $((5 > 3 ? 10 : 20))'
p sh-loop 'i=0; while [ $i -lt 5 ]; do i=$((i + 1)); [ $i = 3 ] && continue; printf "%s " $i; done; echo'
p sh-case 'for x in apple Banana 7; do case $x in [a-z]*) echo lower;; [A-Z]*) echo upper;; *) echo other;; esac; done'
p sh-function 'f() { local v=$1; [ $v -le 1 ] && { echo 1; return; }; echo $((v * $(f $((v - 1))))); }; f 6'
p sh-expand 'v=path/to/file.tar.gz; echo ${v##*/} ${v%.*} ${v%%.*} ${#v} ${v/to/from} ${u:-default} ${v:5:2}'
p sh-here 'cat <<END
a $((1+1)) $HOME
END'
p sh-subst 'echo $(echo inner; echo $(echo deeper)) `echo back`'
p sh-pipe-status 'false | true; echo $?; true | false; echo $?; ! true; echo $?'
p sh-pipefail 'set -o pipefail; false | true; echo $?'
p sh-background 'mkfifo gate; (read go < gate; echo late) & echo early; echo go > gate; wait; echo done; rm gate'
p sh-wait-status 'sh -c "exit 7" & wait $!; echo $?'
# When a shell says that a job was terminated depends on when it hears of it; the status doesn't.
p sh-kill 'exec 2>/dev/null; sleep 100 & p=$!; kill $p; wait $p; echo $?'
p sh-kill-9 'exec 2>/dev/null; sleep 100 & p=$!; kill -9 $p; wait $p; echo $?'
p sh-trap 'trap "echo trapped" USR1; kill -USR1 $$; echo after'
p sh-trap-exit 'trap "echo bye" EXIT; echo hi'
p sh-trap-term 'sh -c "trap \"echo term; exit 3\" TERM; kill -TERM \$\$; sleep 5"; echo $?'
p sh-set-e 'set -e; echo one; false; echo two'
p sh-not-found 'nothing-here'
p sh-not-executable './fruit'
p sh-redirect 'echo out > r1; echo err >&2 2> r2; cat r1; cat < r1 > r3; echo more >> r3; cat r3; rm r1 r2 r3'
p sh-fd 'exec 5> f5; echo five >&5; exec 5>&-; cat f5; exec 6< fruit; read a b <&6; echo "$a-$b"; rm f5'
p sh-read 'echo "x y z" | { read a b; echo "$b+$a"; }; printf "a\\\\b\n" | { read -r l; echo "$l"; }'
p sh-glob 'echo tree/*.txt tree/*/*.txt *.nothing'
p sh-getopts 'set -- -a -b val rest; while getopts ab: o; do echo "$o $OPTARG"; done; shift $((OPTIND-1)); echo $1'
p sh-args 'set -- "a b" c; for x in "$@"; do echo "<$x>"; done; echo $#; shift; echo "$*"'
p sh-exec 'exec busybox echo replaced; echo not reached'
p sh-exit 'exit 42'
p sh-signal-status 'sh -c "kill -SEGV \$\$"; echo $?'
p sh-ulimit 'ulimit -n 64; ulimit -n; ulimit -c 0; ulimit -c'
p sh-umask 'umask 077; touch u; busybox stat -c %a u; umask; umask -S; rm u'
p sh-times 'times | busybox wc -l'
p sh-deep-pipe 'echo start | cat | cat | cat | cat | cat | cat | cat | cat | busybox rev'
p sh-big-pipe 'busybox dd if=/dev/zero bs=64k count=40 2>/dev/null | busybox tr "\0" x | busybox wc -c'
p sh-sigpipe 'busybox yes | busybox head -n 1; echo ok'
p sh-many 'i=0; while [ $i -lt 60 ]; do busybox true; i=$((i+1)); done; echo $i'
p sh-parallel 'for i in 1 2 3 4 5 6 7 8; do (busybox seq 1 300 | busybox md5sum > par$i) & done; wait; busybox cat par* | busybox sort -u | busybox wc -l; rm par*'
p timeout 'busybox timeout 0.1 busybox sleep 10; echo $?'
p timeout-ok 'busybox timeout 10 busybox echo quick; echo $?'
p timeout-kill 'busybox timeout -s KILL 0.1 busybox sleep 10; echo $?'
p setsid 'busybox setsid busybox sh -c "echo in session"; busybox sleep 0.1'
p kill-l 'busybox kill -l | busybox head -n 5; busybox kill -l 9'
p ps 'busybox ps -o pid,comm | busybox grep -c "[0-9]"  >/dev/null; echo $?'
# What a child is called before it has executed its program is its parent's name.
p pidof 'exec 2>/dev/null; /bin/sleep 900 & p=$!
until read name < /proc/$p/comm && [ "$name" = sleep ]; do :; done; [ "$(busybox pidof sleep)" = $p ]; echo $?; kill $p; wait $p; echo $?'
p free-fields 'busybox free | busybox awk "{print NF}"'
p uptime 'busybox uptime | busybox grep -c "load average"'
p df 'busybox df / | busybox wc -l'
p mount-list 'busybox mount | busybox grep -c " on /proc type proc"'
p chroot 'mkdir -p root/bin; cp /bin/busybox root/bin; busybox chroot root /bin/busybox ls /; rm -r root'
p mount-tmpfs 'mkdir mp; busybox mount -t tmpfs none mp && echo x > mp/f; ls mp; busybox umount mp; ls mp; rmdir mp'
p run-parts 'mkdir rp; printf "#!/bin/sh\necho part \$1\n" > rp/one; chmod 755 rp/one; busybox run-parts -a arg rp; rm -r rp'
p ed 'cp fruit e; printf "1d\n\$p\nw\nq\n" | busybox ed e; busybox head -n 1 e; rm e'
p usage 'busybox | busybox head -n 1'
p time 'busybox time -p busybox true 2>&1 | busybox cut -d " " -f 1'
p ts 'busybox seq 3 | busybox ts x | busybox wc -l'
p mkpasswd 'busybox mkpasswd -m sha512 -S saltsalt secret'
p renice 'busybox renice -n 3 $$ && busybox awk "{ print \$19 }" /proc/$$/stat'
p killall 'exec 2>/dev/null; /bin/sleep 900 & p=$!
until read name < /proc/$p/comm && [ "$name" = sleep ]; do :; done; busybox killall sleep; echo $?; wait $p; echo $?'
p setuid 'busybox setpriv --reuid 1000 --regid 1000 --clear-groups busybox id -u'
p su-nobody 'busybox setpriv --reuid 65534 busybox cat /abi/cases > /dev/null; echo $?; busybox chmod 600 fruit; busybox setpriv --reuid 65534 busybox cat fruit; busybox chmod 644 fruit'
p proc-self 'busybox cat /proc/self/comm; busybox tr "\0" " " < /proc/self/cmdline; echo; busybox readlink /proc/self/cwd'
p dev-files 'busybox head -c 4 /dev/zero | busybox od -t x1; busybox cat /dev/null; echo x > /dev/full'
p stty-none 'busybox stty'
p sysctl 'busybox sysctl -n kernel.ostype'
