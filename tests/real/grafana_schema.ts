// What test_dashboards_schema.py holds the committed dashboards against: the types of @grafana/schema, with an enumeration's values as
// JSON spells them.
import type { Dashboard as RawDashboard } from './node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen';
import type * as BarGauge from './node_modules/@grafana/schema/dist/types/raw/composable/bargauge/panelcfg/x/types.gen';
import type * as Heatmap from './node_modules/@grafana/schema/dist/types/raw/composable/heatmap/panelcfg/x/types.gen';
import type * as Stat from './node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import type * as Table from './node_modules/@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen';
import type * as TimeSeries from './node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';

type Plain<T> = unknown extends T
  ? T
  : T extends string
    ? `${T}`
    : T extends number | boolean | null | undefined
      ? T
      : { [K in keyof T]: Plain<T[K]> };

export type Dashboard = Plain<RawDashboard>;
export type Options = {
  bargauge: Plain<BarGauge.Options>;
  heatmap: Plain<Heatmap.Options>;
  stat: Plain<Stat.Options>;
  table: Plain<Table.Options>;
  timeseries: Plain<TimeSeries.Options>;
};
export type Custom = {
  bargauge: Record<string, never>;
  heatmap: Plain<Heatmap.FieldConfig>;
  stat: Record<string, never>;
  table: Partial<Plain<Table.FieldConfig>>;
  timeseries: Plain<TimeSeries.FieldConfig>;
};
