# tally.sh DIR GATE [STATE]: adds up numbers, its state in a file of DIR after each step. Stays in its middle until the
# file GATE is there. With STATE it goes on from there.
dir=$1 gate=$2 state=$1/state-$FTB_JOB_ID-$FTB_RANK
n=0 sum=$FTB_RANK
[ -z "$3" ] || read -r n sum <"$3"
while [ "$n" -lt 200 ]; do
  n=$((n + 1))
  sum=$(((sum * 31 + n) % 1000003))
  echo "$n $sum" >"$state.part"
  mv "$state.part" "$state"
  while [ "$n" -eq 100 ] && [ ! -e "$gate" ]; do sleep 0.01; done
done
echo "result $FTB_RANK $sum"
