#!/usr/bin/env perl
# Perl data structures under churn, each beside a second copy kept another way.
#
# - a hash of strings and its sorted keys; nested structures rebuilt from their own description;
# - long strings edited in place, with a running checksum; regular expressions with captures;
# - sorting, packing and unpacking; closures that keep counters; a file in the current directory.
#
# Usage: churn.pl [ROUNDS]
use strict;
use warnings;

my $rounds = @ARGV ? shift : 280;
my $state  = 12345;
$| = 1;

sub check {
    my ($holds, $what) = @_;
    return if $holds;
    print STDERR "churn.pl: does not hold: $what\n";
    kill 'ABRT', $$;
}

# A small generator of our own: the same numbers from every version of Perl.
sub below {
    my ($n) = @_;
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    return ($state >> 8) % $n;
}

my %shelf;        # key to value
my %by_length;    # length to the set of keys whose value is so long
sub shelf_step {
    my $key = sprintf 'key-%04d', below(3000);
    if (exists $shelf{$key}) {
        my $length = length $shelf{$key};
        check(delete $by_length{$length}{$key}, "$key is not listed under its length $length");
        check($shelf{$key} =~ /^(\Q$key\E)+$/, "the value of $key");
        delete $shelf{$key};
    }
    else {
        $shelf{$key} = $key x (1 + below(20));
        $by_length{length $shelf{$key}}{$key} = 1;
    }
}

# A long text edited in place; its sum is followed edit by edit.
my $text = join '', map { chr(97 + $_ % 26) } 0 .. 99_999;
my $sum  = unpack '%32C*', $text;
sub text_step {
    my ($at, $length) = (below(99_000), 1 + below(900));
    my $new = join '', map { chr(97 + ($_ * 7 + $at) % 26) } 1 .. $length;
    $sum += unpack('%32C*', $new) - unpack('%32C*', substr $text, $at, $length);
    substr($text, $at, $length) = $new;
}

# A tree and its printed form: one is rebuilt from the other.
sub grow {
    my ($depth) = @_;
    return below(1000) unless $depth;
    return [map { grow($depth - 1) } 0 .. below(4)];
}
sub show  { my ($t) = @_; return ref $t ? '(' . join(' ', map { show($_) } @$t) . ')' : $t }
sub parse {
    my ($text) = @_;
    return $1 if $$text =~ /\G\s*(\d+)/gc;
    check(scalar($$text =~ /\G\s*\(/gc), 'a printed tree begins with a bracket');
    my @children;
    push @children, parse($text) until $$text =~ /\G\s*\)/gc;
    return \@children;
}

my @counters = map { my $count = 0; sub { return $count += $_[0] } } 0 .. 9;
my @counted  = (0) x 10;

my $log = 'churn.log';
open my $out, '>', $log or die "$log: $!";
my @lines;

for my $round (1 .. $rounds) {
    shelf_step() for 1 .. 2500;
    text_step()  for 1 .. 30;
    check(unpack('%32C*', $text) == $sum, 'the text and its sum');
    my $listed = 0;
    $listed += keys %$_ for values %by_length;
    check($listed == keys %shelf, 'the shelf and its list');
    my $tree  = show(grow(6));
    my $again = $tree;
    pos($again) = 0;
    check(show(parse(\$again)) eq $tree, 'a tree did not come back from its printed form');
    my @numbers = map { below(1 << 20) } 1 .. 4000;
    my @sorted  = sort { $a <=> $b } unpack 'N*', pack 'N*', @numbers;
    $sorted[$_ - 1] <= $sorted[$_] or check(0, 'a sorted list') for 1 .. $#sorted;
    for (1 .. 50) {
        my ($i, $n) = (below(10), below(100));
        $counted[$i] += $n;
        check($counters[$i]->($n) == $counted[$i], "counter $i");
    }
    my $digest = unpack '%32N*', pack 'N*', @sorted, @counted, $sum, scalar keys %shelf;
    my $line   = sprintf 'round %d of %d: %08x %d', $round, $rounds, $digest, length $tree;
    print "$line\n";
    print {$out} "$line\n" or die "$log: $!";
    push @lines, $line;
}
close $out or die "$log: $!";
open my $in, '<', $log or die "$log: $!";
chomp(my @read = <$in>);
check("@read" eq "@lines", "$log holds what was written");
printf "digest %08x\n", unpack '%32C*', join '', %shelf, $text;
