/** What a component asks the server for: the value, why there is none, and a way to ask again. */
import * as React from 'react';

export interface Loaded<T> {
  value: T | null;
  error: string | null;
  loading: boolean;
  again: () => void;
}

/** Asks when `load` changes, and when asked to; the last answer stays while the next is on its way. */
export function useLoaded<T>(load: () => Promise<T>): Loaded<T> {
  const [value, setValue] = React.useState<T | null>(null);
  const [error, setError] = React.useState<string | null>(null);
  const [loading, setLoading] = React.useState(true);
  const [turn, setTurn] = React.useState(0);
  React.useEffect(() => {
    let wanted = true;
    setLoading(true);
    load().then(
      found => {
        if (wanted) {
          setValue(found);
          setError(null);
          setLoading(false);
        }
      },
      (reason: unknown) => {
        if (wanted) {
          setValue(null);
          setError(reason instanceof Error ? reason.message : String(reason));
          setLoading(false);
        }
      }
    );
    return () => {
      wanted = false;
    };
  }, [load, turn]);
  const again = React.useCallback(() => {
    setTurn(before => before + 1);
  }, []);
  return { value, error, loading, again };
}
